"""Write response.json: what an inference server that ran demo-gpt2 would send.

    python sample_inputs/make_response.py

transformers generates, and its logits in double precision give the log probabilities.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("response.json")
MESSAGES = [{"role": "user", "content": "The key is under the old stone. Where is the key?"}]
TOKENS = 12


def response() -> dict[str, Any]:
    """A request and a ``chat.completion``, greedy, with the ids that vLLM adds."""
    import torch
    import transformers

    from attnviz.models.demo import DEMOS

    folder = DEMOS["demo-gpt2"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).double().eval()
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = list(prompt)
    listed = []
    with torch.no_grad():
        while len(ids) < len(prompt) + TOKENS:
            log_probs = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            ids.append(int(log_probs.argmax()))
            token = tokenizer.decode([ids[-1]])
            listed.append({
                "token": token,
                "logprob": round(float(log_probs[ids[-1]]), 6),
                "bytes": list(token.encode()),
            })  # fmt: skip
            if ids[-1] == tokenizer.eos_token_id:
                break
    written = ids[len(prompt) :]
    return {
        "request": {"model": "demo-gpt2", "messages": MESSAGES, "temperature": 0, "logprobs": True},
        "response": {
            "object": "chat.completion",
            "model": "demo-gpt2",
            "prompt_token_ids": prompt,
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": tokenizer.decode(written, skip_special_tokens=True),
                    },
                    "logprobs": {"content": listed},
                    "token_ids": written,
                    "finish_reason": "stop" if len(written) < TOKENS else "length",
                }
            ],
        },
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(response(), indent=1) + "\n", "utf-8")
    print(FILE)
