"""Standard input and output, on which every message gets a reply, also one that cannot be read."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

from anyio import EndOfStream
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

from attnviz.errors import Message


class Answering:
    r"""A stream of messages that answers by itself those that are none.

    The SDK hands them on as exceptions, and drops these: whoever asked would wait for ever, for a
    lone surrogate (``"\ud800"``, half of a character) in a text, say.
    """

    def __init__(self, messages: Any, replies: Any) -> None:
        self._messages, self._replies = messages, replies

    @property
    def last_context(self) -> Any:
        """The context variables of whoever sent the last message."""
        return self._messages.last_context

    async def receive(self) -> SessionMessage:
        """The next message."""
        while True:
            message = await self._messages.receive()
            if isinstance(message, SessionMessage):
                return message
            if reply := refusal(message):
                await self._replies.send(SessionMessage(reply))

    async def aclose(self) -> None:
        """Read no more."""
        await self._messages.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def refusal(error: Exception) -> JSONRPCError | None:
    """The reply to what is no message, by JSON-RPC 2.0; None to an empty line."""
    if not isinstance(error, ValidationError):
        return _refused(None, INVALID_REQUEST, str(error))
    problems = error.errors(include_url=False)
    first = problems[0]
    if first["type"] != "json_invalid":
        whole = next((each["input"] for each in problems if isinstance(each["input"], dict)), None)
        name = ".".join(map(str, first["loc"][1:]))
        return _refused(whole, INVALID_REQUEST, f"{name}: {first['msg']}" if name else first["msg"])
    if not str(first["input"]).strip():
        return None
    try:
        whole = json.loads(first["input"])
    except (ValueError, RecursionError):
        return _refused(None, PARSE_ERROR, first["msg"])
    remedy = "half of a surrogate pair, such as \\ud800, is no character: leave it out"
    return _refused(whole, PARSE_ERROR, f"{first['msg']}; {remedy}")


def _refused(message: Any, code: int, why: str) -> JSONRPCError:
    """The refusal of a message, by its id where it has one that can be sent back."""
    number = message.get("id") if isinstance(message, dict) else None
    known = isinstance(number, int) and not isinstance(number, bool)
    if isinstance(number, str):
        known = number == sendable(number)
    said = ErrorData(code=code, message=Message(f"cannot read this message: {why}"))
    return JSONRPCError(jsonrpc="2.0", id=number if known else None, error=said)


def sendable(text: str) -> str:
    """A text without what UTF-8 cannot say, such as a name of a file in another encoding."""
    return text.encode("utf-8", "backslashreplace").decode()
