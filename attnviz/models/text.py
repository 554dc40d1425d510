"""From token ids to readable :class:`~attnviz.core.tokens.Tokens`, for any tokenizer.

Vocabularies spell their pieces in five ways: GPT-2's bytes as printable characters (``Ġkeys``),
SentencePiece's word mark (``▁keys``), WordPiece's continuation mark (``##ing``), a mark at the end
of a word (``keys</w>``) and a mark at the end of a piece that goes on (``key@@``). A
:class:`TokenReader` knows which, and turns every id into the text it stands for: ``" keys"``,
``" keys"``, ``"##ing"``, ``"keys "``, ``"key@@"``. Bytes that are not whole characters are shown in
hexadecimal: ``<E2 9A>``. What a token *is* depends on its id alone, so typed text and the same ids
given by hand make the same Tokens; only an unknown token also shows what it stands for
(``[UNK] 🤗``), where a text was typed.

Words: a piece starts a new word where the vocabulary says so (a space in front, no ``##``, no
``@@`` before it) and where letters meet punctuation, so that ``" keys"`` and ``"."`` are two words
in every vocabulary. Where pieces carry no mark of a space, the tokenizer's own words and the spaces
of the text decide. An apostrophe between letters does not end a word: ``didn't`` is one (UAX #29,
rules WB6 and WB7).

Where named parts of a text stand among its tokens.

A token belongs to a part if it shares a character with it that is not white space; a token that is
nothing but white space, if it shares any. So ``" Paris"`` is in the part ``Paris``, and not in the
part that ends before it. A patch of a picture belongs to a box that covers at least half of its
area; to a box that covers half of no patch belongs that with its centre.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnviz.core.media import Crop, Picture
from attnviz.core.prompt import Prompt
from attnviz.core.spans import (
    Range,
    Span,
    SpanQuery,
    box_of,
    check_apart,
    found_in,
    no_picture,
    ranges_of,
    runs,
    span_query,
)
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, cut

if TYPE_CHECKING:
    from tokenizers import Tokenizer


Spelling = Literal["bytes", "spaces", "whole", "joins"]
"""How pieces mark words: GPT-2's byte characters, spaces (or a mark for them), ``##`` in front of
what continues a word (or nothing at all), or ``@@`` behind what goes on."""

SEPARATORS = frozenset(
    {"[SEP]", "</s>", "<sep>", "<eos>", "<eod>", "[EOS]", "<|endoftext|>", "<|eot_id|>"}
    | {"<|end_of_text|>", "<|im_end|>", "<|end|>", "<|eos|>", "<end_of_turn>", "<turn|>"}
)
"""Names of the tokens that end a segment, whatever the vocabulary."""

Offsets = Sequence[tuple[int, int]]
"""The characters of every token, first and end; empty ranges for tokens that are not in a text."""

_CONTENT = re.compile(r"unk|mask|extra_id|unused", re.IGNORECASE)
_UNKNOWN = re.compile(r"\W*unk(?:nown)?\W*", re.IGNORECASE)
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_HEX = re.compile(r"(?:<[89A-F][0-9A-F](?: [89A-F][0-9A-F])*>)+")
_HEX_END = re.compile(_HEX.pattern + "$")
_MOST_BYTES = 4
"""Of a character in UTF-8."""
_WORD_END = "</w>"
_CONTINUES, _GOES_ON = "##", "@@"
_MARKS = frozenset(
    ("[CLS]", "[SEP]", "[PAD]", "<s>", "</s>", "<pad>", "<|endoftext|>", "<bos>", "<eos>")
)
_ENDS = frozenset(("[SEP]", "</s>"))
"""Texts of tokens that are taken for a model's own marks, and of those that end a segment."""
_APOSTROPHES = ("'", "\u2019")
_ENDINGS = frozenset(("t", "s", "d", "m", "ll", "re", "ve"))
"""What follows the apostrophe of an English contraction or possessive."""
_SPACE_MARK = "\u2581"


def _byte_alphabet() -> dict[str, int]:
    """Character -> byte of GPT-2's vocabulary: printable Latin-1 as itself, others from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    unprintable = (byte for byte in range(256) if chr(byte) not in alphabet)
    return alphabet | {chr(0x100 + n): byte for n, byte in enumerate(list(unprintable))}


_BYTES = _byte_alphabet()


@dataclass(frozen=True, slots=True)
class Encoded:
    """What a tokenizer says of the tokens that it made of typed text."""

    sentences: Sequence[str | None]  # the text, and the second one of a pair
    offsets: Offsets  # the characters of every token in its sentence
    # 0 or 1, the sentence of each token; None for tokens that were added
    sequences: Sequence[int | None]
    # the tokenizer's own number of the word of each token (``word_ids``)
    owners: Sequence[int | None]

    def stood(self, index: int) -> str:
        """Return what a token stands for, as it was typed; empty for one that was added."""
        (start, end), sequence = self.offsets[index], self.sequences[index]
        return "" if sequence is None else (self.sentences[sequence] or "")[start:end].strip()

    def groups(self) -> tuple[tuple[object, ...], ...]:
        """Give a key for each token, the same for neighbours that the tokenizer has in one word."""
        keys: list[tuple[object, ...]] = []
        part = 0
        previous: tuple[int | None, int] = (None, 0)
        for index, (start, end) in enumerate(self.offsets):
            sequence = self.sequences[index]
            if sequence is not None and sequence == previous[0]:
                between = (self.sentences[sequence] or "")[previous[1] : start + 1][:-1]
                first = (self.sentences[sequence] or "")[start : start + 1]
                part += bool(between and between.isspace()) or (start < end and first.isspace())
            keys.append((sequence, self.owners[index], part))
            previous = (sequence, max(end, start))
        return tuple(keys)


@dataclass(frozen=True)
class TokenReader:
    """Reads the tokens of one vocabulary."""

    # id -> the piece as the vocabulary spells it, or None for an id without one
    piece: Callable[[int], str | None]
    spelling: Spelling  # how its pieces mark words
    # ids whose pieces are plain text, whatever the spelling (added tokens)
    verbatim: frozenset[int] = field(default=frozenset(), repr=False)
    # ids of control tokens (``[CLS]``, ``<s>``, ...; not ``[UNK]`` or ``[MASK]``, which stand for
    # text).
    special: frozenset[int] = field(default=frozenset(), repr=False)
    separators: frozenset[int] = frozenset()  # ids of the tokens that end a segment
    unknown: frozenset[int] = frozenset()  # ids that stand for text without a piece of its own

    def text(self, token_id: int) -> str:
        """Return the readable text of one id; ``#id`` where the vocabulary has no piece for it."""
        try:
            piece = self.piece(token_id)
        except OverflowError:  # negative, or beyond 32 bits
            piece = None
        if piece is None:
            return f"#{token_id}"
        return piece if token_id in self.verbatim else readable(piece, self.spelling)

    def tokens(
        self,
        ids: Sequence[int],
        *,
        segments: Sequence[int] = (),
        added: Sequence[int] | Sequence[bool] = (),
        owners: Sequence[int] | None = None,
        encoded: Encoded | None = None,
    ) -> Tokens:
        """Return the record of a token sequence."""
        texts = tuple(self.text(token_id) for token_id in ids)
        special = [token_id in self.special for token_id in ids]
        for index, flag in enumerate(added):
            special[index] = special[index] or bool(flag)
        numbers, labels = owners, texts
        if numbers is None:
            groups = None if encoded is None else encoded.groups()
            numbers = words(texts, special, self.spelling, groups)
        if encoded is not None:
            labels = tuple(
                self._shown(text, encoded.stood(number)) if ids[number] in self.unknown else text
                for number, text in enumerate(texts)
            )
        return Tokens(
            texts=labels,
            ids=tuple(int(token_id) for token_id in ids),
            special=tuple(special),
            separators=tuple(n > 0 and token in self.separators for n, token in enumerate(ids)),
            words=tuple(numbers),
            segments=tuple(int(segment) for segment in segments),
        )

    @staticmethod
    def _shown(text: str, stood: str) -> str:
        """Return an unknown token with what it stands for."""
        return f"{text} {stood}" if stood and stood != text else text


def reader(tokenizer: Tokenizer, *, separators: Iterable[int | None] = ()) -> TokenReader:
    """Return the reader of a ``tokenizers.Tokenizer``."""
    added = tokenizer.get_added_tokens_decoder()
    control = {
        i: t.content for i, t in added.items() if t.special and not _CONTENT.search(t.content)
    }
    return TokenReader(
        piece=_usual_marks(tokenizer),
        spelling=_spelling(tokenizer),
        verbatim=frozenset(added),
        special=frozenset(control),
        separators=_separators(control, separators),
        unknown=_unknown(tokenizer, control),
    )


def marked(texts: Sequence[str], special: Sequence[bool] | None = None) -> Tokens:
    """Tokens of which only the texts are known, which may be a vocabulary's raw pieces."""
    if special is None:
        special = tuple(text in _MARKS for text in texts)
    spelling = _raw_spelling([t for t, flag in zip(texts, special, strict=True) if not flag])
    separators = tuple(text in _ENDS for text in texts)
    if spelling is None:
        return Tokens(tuple(texts), special=tuple(special), separators=separators)
    read = tuple(
        text if flag else readable(text, spelling)
        for text, flag in zip(texts, special, strict=True)
    )
    return Tokens(
        read, special=tuple(special), separators=separators, words=words(read, special, spelling)
    )


def _raw_spelling(pieces: Sequence[str]) -> Spelling | None:
    """How pieces mark words, by the marks that they carry; None where they carry none."""
    if any(piece[:1] in ("Ġ", "Ċ") for piece in pieces if piece) and all(
        character in _BYTES for piece in pieces for character in piece
    ):
        return "bytes"
    if any(piece.startswith((_SPACE_MARK, " ")) for piece in pieces):
        return "spaces"
    longer = [piece for piece in pieces if piece not in (_WORD_END, _CONTINUES, _GOES_ON)]
    if any(piece.endswith(_WORD_END) for piece in longer):
        return "spaces"
    if any(piece.startswith(_CONTINUES) for piece in longer):
        return "whole"
    return "joins" if any(piece.endswith(_GOES_ON) for piece in longer) else None


def transformers_reader(tokenizer: Any) -> TokenReader:
    """Return the reader of a transformers tokenizer, fast or slow (``PreTrainedTokenizerBase``)."""
    ends = (getattr(tokenizer, "sep_token_id", None), getattr(tokenizer, "eos_token_id", None))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return reader(backend, separators=ends)
    special = {
        token_id: str(piece)
        for token_id, piece in zip(
            tokenizer.all_special_ids,
            tokenizer.convert_ids_to_tokens(tokenizer.all_special_ids),
            strict=True,
        )
        if not _CONTENT.search(str(piece))
    }
    spelling: Spelling = "spaces"
    if hasattr(tokenizer, "byte_decoder"):
        spelling = "bytes"
    elif hasattr(tokenizer, "wordpiece_tokenizer"):
        spelling = "whole"
    elif _joins(tokenizer.convert_tokens_to_string):
        spelling = "joins"
    return TokenReader(
        piece=lambda token_id: _slow_piece(tokenizer, token_id),
        spelling=spelling,
        verbatim=frozenset(getattr(tokenizer, "added_tokens_decoder", {})),
        special=frozenset(special),
        separators=_separators(special, ends),
    )


def unnamed_reader() -> TokenReader:
    """Return a reader for ids without a vocabulary: every token is called ``#id``."""
    return TokenReader(piece=lambda token_id: None, spelling="whole")


@lru_cache(maxsize=1 << 15)
def readable(piece: str, spelling: Spelling) -> str:
    """Read what a vocabulary's piece stands for, as text; the same few come again and again."""
    if spelling in ("whole", "joins"):
        return piece
    end = ""
    if piece.endswith(_WORD_END) and piece != _WORD_END:
        piece, end = piece.removesuffix(_WORD_END), " "
    if spelling == "bytes":
        if not all(character in _BYTES for character in piece):
            return piece + end
        return _decode(bytes(_BYTES[character] for character in piece)) + end
    match = _BYTE_PIECE.fullmatch(piece)
    if match:
        return _decode(bytes.fromhex(match[1]))
    return piece.replace(_SPACE_MARK, " ") + end


def offsets_in_text(offsets: Offsets, sequences: Sequence[int | None]) -> list[tuple[int, int]]:
    """Offsets of the first of two sentences; those of the second and of added tokens empty."""
    return [(a, b) if n == 0 else (0, 0) for (a, b), n in zip(offsets, sequences, strict=True)]


def owners(
    text: str, spans: Sequence[tuple[int, int]], offsets: Sequence[tuple[int, int]]
) -> tuple[int, ...]:
    """Return the span of each token: the first that shares a character with it; -1 for none."""
    owner = np.full(len(text) + 1, -1)
    for number, (start, end) in enumerate(spans):
        owner[start:end] = number
        if text[:start].endswith(" "):
            owner[start - 1] = number
    return tuple(next((int(n) for n in owner[start:end] if n >= 0), -1) for start, end in offsets)


def words(
    texts: Sequence[str],
    special: Sequence[bool],
    spelling: Spelling,
    groups: Sequence[object] | None = None,
) -> tuple[int, ...]:
    """Return the number of the word each token belongs to, from 0; -1 for special tokens."""
    numbers: list[int] = []
    current, word, previous = -1, "", None
    for index, (text, is_special) in enumerate(zip(texts, special, strict=True)):
        if is_special:
            numbers.append(-1)
            previous = None
            continue
        end = min(index + _MOST_BYTES, len(texts))
        run = texts[index : next((i for i in range(index, end) if special[i]), end)]
        if previous is not None and groups is not None and spelling == "whole":
            divided = groups[index] != groups[index - 1]
        else:
            divided = previous is None or _starts_word(previous, word, run, spelling)
        starts = previous is None or (divided and not _contracted(word, run, spelling))
        bare = text.removesuffix(_GOES_ON) if spelling == "joins" else text
        current, word = (current + 1, bare) if starts else (current, word + bare)
        numbers.append(current)
        previous = text
    return tuple(numbers)


def _contracted(word: str, run: Sequence[str], spelling: Spelling) -> bool:
    """Whether the first piece of a run goes on with a word across an apostrophe.

    Where pieces do not say whether a space stood in front of them, only an English ending does.
    """
    text = run[0]
    if len(word) > 1 and word[-1] in _APOSTROPHES:
        return _is_letter(word[-2]) and _is_letter(text[:1] or " ")
    if not word or not _is_letter(word[-1]) or not text.startswith(_APOSTROPHES):
        return False
    suffix = text[1:] or "".join(run[1:2])
    if spelling in ("whole", "joins"):
        return suffix in _ENDINGS
    return bool(suffix) and _is_letter(suffix[0])


def _starts_word(previous: str, word: str, run: Sequence[str], spelling: Spelling) -> bool:
    """Whether the first piece of a run starts a word, after the pieces of ``word``."""
    text = run[0]
    if spelling == "whole":
        return not text.startswith(_CONTINUES)
    if spelling == "joins":
        held = previous.removesuffix(_GOES_ON)
        if held in ("", previous):
            return True
        left, right = held[-1], text[:1] or " "  # words of several syllables are written a_b
        return (left == "_" or _is_letter(left)) != (right == "_" or _is_letter(right))
    if not text or not previous:
        return False
    if text[0].isspace():
        return True
    if previous[-1].isspace():
        return previous != " "  # a space on its own is the start of the word that follows
    if not _HEX.match(text) and not _HEX_END.search(previous):
        return _is_letter(previous[-1]) != _is_letter(text[0])
    left, right = _last_character(word), _first_character("".join(run))
    if not left or not right or unicodedata.category(right)[0] == "M":
        return False  # inside of a character, or a mark on the one before
    return _is_letter(left) != _is_letter(right)


def _first_character(text: str) -> str:
    """Find the character a text starts with, also where its bytes are spelled; empty if none."""
    match = _HEX.match(text)
    if not match:
        return text[:1]
    data = _hex_bytes(match[0])
    for count in range(1, _MOST_BYTES + 1):
        try:
            return data[:count].decode()
        except UnicodeDecodeError:
            continue
    return ""


def _last_character(text: str) -> str:
    """Get the character with which a text ends, also where its bytes are spelled; empty if none."""
    match = _HEX_END.search(text)
    try:
        return _hex_bytes(match[0]).decode()[-1:] if match else text[-1:]
    except UnicodeDecodeError:
        return ""


def _hex_bytes(run: str) -> bytes:
    return bytes.fromhex(run.replace("<", " ").replace(">", " "))


def _is_letter(character: str) -> bool:
    """Letters, digits and the marks that combine with them, in any script."""
    return unicodedata.category(character)[0] in "LNM"


def _decode(data: bytes) -> str:
    """UTF-8 as text, with bytes that make no character as ``<E2 9A>``."""
    text, broken = "", b""
    while data:
        try:
            good, bad, remaining = data.decode(), b"", b""
        except UnicodeDecodeError as error:
            good = data[: error.start].decode()
            bad, remaining = data[error.start : error.end], data[error.end :]
        if good and broken:
            text, broken = text + f"<{broken.hex(' ').upper()}>", b""
        text, broken, data = text + good, broken + bad, remaining
    return text + (f"<{broken.hex(' ').upper()}>" if broken else "")


def _spelling(tokenizer: Tokenizer) -> Spelling:
    parts = (tokenizer.decoder, tokenizer.pre_tokenizer, tokenizer.normalizer)
    state = "".join(part.__getstate__().decode() for part in parts if part is not None)
    if '"ByteLevel"' in state:
        return "bytes"
    marks = (_SPACE_MARK, "Metaspace", "BPEDecoder", _WORD_END)
    if any(mark in state for mark in marks) or getattr(tokenizer.model, "end_of_word_suffix", None):
        return "spaces"
    if tokenizer.decoder is not None and _joins(tokenizer.decoder.decode):
        return "joins"
    return "whole"


def _joins(join: Callable[[list[str]], str]) -> bool:
    """Whether what makes a text of pieces joins one that ends in ``@@`` with the next."""
    try:
        return join(["a" + _GOES_ON, "b"]).strip() == "ab"
    except Exception:
        return False


def _usual_marks(tokenizer: Tokenizer) -> Callable[[int], str | None]:
    """Give the piece of each id, with ``##`` before what continues, ``</w>`` at a word's end."""
    prefix = getattr(tokenizer.model, "continuing_subword_prefix", None) or _CONTINUES
    suffix = getattr(tokenizer.model, "end_of_word_suffix", None) or _WORD_END
    if (prefix, suffix) == (_CONTINUES, _WORD_END):
        return tokenizer.id_to_token

    def piece(token_id: int) -> str | None:
        spelled = tokenizer.id_to_token(token_id)
        if spelled is None or len(spelled) <= len(prefix):
            return spelled
        if spelled.startswith(prefix):
            spelled = _CONTINUES + spelled.removeprefix(prefix)
        ends = spelled.endswith(suffix)
        return spelled.removesuffix(suffix) + _WORD_END if ends else spelled

    return piece


def _unknown(tokenizer: Tokenizer, control: Mapping[int, str]) -> frozenset[int]:
    """Return the ids that stand for text without a piece of its own."""
    named = getattr(tokenizer.model, "unk_token", None)
    unknown_id = None if named is None else tokenizer.token_to_id(named)
    added = tokenizer.get_added_tokens_decoder().items()
    ids = {token_id for token_id, token in added if _UNKNOWN.fullmatch(token.content)}
    if unknown_id is not None:
        ids.add(unknown_id)
    return frozenset(ids - control.keys())


def _separators(control: dict[int, str], ends: Iterable[int | None]) -> frozenset[int]:
    named = {token_id for token_id, name in control.items() if name in SEPARATORS}
    return frozenset(named | {end for end in ends if end is not None})


def _slow_piece(tokenizer: Any, token_id: int) -> str | None:
    try:
        piece = tokenizer.convert_ids_to_tokens(int(token_id))
    except (IndexError, KeyError):  # sentencepiece raises for ids past its end
        return None
    return None if piece is None else str(piece)


def spanned(
    tokens: Tokens,
    prompt: Prompt,
    offsets: Offsets | None,
    notes: list[str],
    picture: Picture | None = None,
) -> Tokens:
    """Tokens with the named parts that a prompt asks for."""
    if not prompt.spans:
        return tokens
    spans = []
    for name, spec in prompt.spans.items():
        query = span_query(name, spec)
        if query.kind == "tokens":
            spans.append(_by_tokens(query, len(tokens)))
            continue
        if query.kind == "box":
            if prompt.image is None:
                raise no_picture(name)
            spans.append(_by_box(query, tokens, picture, notes))
            continue
        if offsets is None or prompt.text is None:  # of ids: in what they stand for
            ends = [*accumulate(map(len, tokens.texts), initial=0)]
            read = _by_characters(query, "".join(tokens.texts), [*pairwise(ends)], notes)
            spans.append(replace(read, characters=()))
            continue
        spans.append(_by_characters(query, prompt.text, offsets, notes))
    check_apart(spans)
    return replace(tokens, spans=tuple(spans))


def needs_offsets(prompt: Prompt) -> bool:
    """Whether parts of a prompt are looked for among characters."""
    queries = (span_query(name, spec) for name, spec in (prompt.spans or {}).items())
    return any(query.kind not in ("tokens", "box") for query in queries)


def _by_box(query: SpanQuery, tokens: Tokens, picture: Picture | None, notes: list[str]) -> Span:
    """Return the patches of a box; see the module."""
    box = box_of(query)
    name, crops = query.name, () if picture is None else picture.crops
    if not crops:
        raise InputError(
            f"span {name!r} is a box, and where in the picture this model's tokens lie is not known"
        )
    mine = [crop for crop in crops if crop.number == box.picture]
    if not mine:
        count = max(crop.number for crop in crops)
        counted = "one picture is" if count == 1 else f"{count} pictures are"
        raise InputError(f"span {name!r} is a box of picture {box.picture}; {counted} given")
    width, height = mine[0].size
    if box.edges[2] > width or box.edges[3] > height:
        raise InputError(
            f"span {name!r} reaches beyond {mine[0].name or 'the picture'}, which has {width:,} × "
            f"{height:,} pixels"
        )
    index_of = {patch: number for number, patch in enumerate(tokens.places) if patch}

    def patches(of: Callable[[Crop], list[tuple[int, int]]]) -> list[int]:
        cells = ((crop.row + row, column) for crop in mine for row, column in of(crop))
        return [index_of[patch] for patch in cells if patch in index_of]

    covered = patches(lambda crop: crop.covered(box.edges))
    if not covered:
        covered = patches(lambda crop: crop.with_centre(box.edges))
        notes.append(f"Span '{name}' covers half of no patch; that with its centre is taken.")
    if not covered:
        raise InputError(f"span {name!r} lies where the model sees nothing of the picture")
    return Span(name, runs(sorted(covered)), box=box)


def _by_tokens(query: SpanQuery, length: int) -> Span:
    ranges = ranges_of(query)
    if ranges[-1][1] > length:
        raise InputError(
            f"span {query.name!r} ends at token {ranges[-1][1] - 1}; the text has {length:,} "
            "tokens, from 0"
        )
    return Span(query.name, runs(position for a, b in ranges for position in range(a, b)))


def _by_characters(query: SpanQuery, text: str, offsets: Offsets, notes: list[str]) -> Span:
    if query.kind == "chars":
        characters = list(ranges_of(query))
        if characters[-1][1] > len(text):
            raise InputError(
                f"span {query.name!r} ends at character {characters[-1][1] - 1}; the text has "
                f"{len(text):,}, from 0"
            )
    else:
        characters, note = found_in(query, text)
        notes += [note] if note else []
    inside = [n for n, token in enumerate(offsets) if _shared(text, token, characters)]
    if not inside:
        raise InputError(
            f"span {query.name!r} has no token among those that are read; it was cut off, or is "
            "nothing but spaces"
        )
    _tell_edges(query.name, text, offsets, characters, inside, notes)
    return Span(query.name, runs(inside), tuple(characters))


def _shared(text: str, token: Range, characters: Sequence[Range]) -> bool:
    """Whether a token belongs to these characters; see the module."""
    for a, b in characters:
        start, end = max(token[0], a), min(token[1], b)
        if start < end and (text[start:end].strip() or not text[token[0] : token[1]].strip()):
            return True
    return False


def _tell_edges(
    name: str,
    text: str,
    offsets: Offsets,
    characters: Sequence[Range],
    inside: Sequence[int],
    notes: list[str],
) -> None:
    """Say where the first or last token of a part holds more than the part, spaces aside."""
    for a, b in characters:
        mine = [offsets[n] for n in inside if _shared(text, offsets[n], [(a, b)])]
        if not mine:
            notes.append(f"Span '{name}': part of it was cut off.")
            continue
        head, tail = text[mine[0][0] : a].strip(), text[b : mine[-1][1]].strip()
        for extra, which in ((head, "first"), (tail, "last")):
            if extra:
                notes.append(f"Span '{name}': its {which} token also holds {cut(extra)!r}.")
        if mine[-1][1] < b and text[mine[-1][1] : b].strip():
            notes.append(f"Span '{name}': part of it was cut off.")
