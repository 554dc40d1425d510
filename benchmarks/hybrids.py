"""``heads`` of a hybrid against the model's own pass: layers with a state are run, and not scored.

Four layers of Qwen3-Next (https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct), three of them
with a gated delta rule, with random weights and dense feed-forward parts in the place of experts.
Both take turns in one process on one thread (A B A B); the ratio is the median of the pairs.
"""

from __future__ import annotations

from benchmarks.table import Row, in_turn

TOKENS, PAIRS = 1024, 5
SPEED = 1.3


def measure() -> list[Row]:
    """Return the one row; takes a minute."""
    import torch
    import transformers

    import attnviz as av

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.Qwen3NextConfig(
        num_hidden_layers=4,
        mlp_only_layers=[0, 1, 2, 3],
        vocab_size=4096,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(3, 4096, (1, TOKENS))
    source, prompt = av.load(model), av.Prompt(ids=tuple(ids[0].tolist()))

    def alone() -> None:
        with torch.no_grad():
            model.model(ids, use_cache=False)

    def ours() -> None:
        av.heads(prompt, model=source)

    turns = in_turn(ours, alone, PAIRS)
    what = f"four layers of Qwen3-Next: heads, T={TOKENS:,}"
    return [turns.row(what, "the model's own pass", SPEED)]
