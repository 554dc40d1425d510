"""Texts with pictures of any size in them: whose tokens are where, proved on tiny models.

The proof: in a model whose tower attends to nothing (the projection behind its attention is zero),
a change of one patch of a picture moves the embeddings of that patch's tokens, and of no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import attnviz as av
from attnviz.cli import main
from attnviz.core.media import Crop
from attnviz.core.prompt import Generation, Prompt
from attnviz.core.source import ForwardRequest
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.models import pretrained
from attnviz.models.hooked import vision_language
from attnviz.models.hooked.picture_layout import _shape, ramp, tiles_of
from tests import mostly_slow
from tests.models.tiny import same_maps
from tests.models.tiny_pictures import build, transformers
from tests.models.tiny_senses import build as build_vit
from tests.viewing import data_of

Image = pytest.importorskip("PIL.Image")

TEXT = "what is this ?"
READ = {
    "qwen2_vl": (8, ((24, 40), (32, 16))), "qwen2_5_vl": (8, ((24, 40), (32, 16))),
    "qwen3_vl": (8, ((24, 40), (32, 16))), "gemma3": (8, ((32, 32), (32, 32))),
    "internvl": (8, ((32, 48), (48, 32))), "idefics3": (8, ((32, 48), (48, 48))),
    "llava_next": (4, ((32, 32), (16, 48))), "llava_onevision": (4, ((32, 32), (16, 48))),
    "pixtral": (4, ((24, 48), (48, 12))), "mistral3": (8, ((24, 48), (48, 16))),
}  # fmt: skip
"""Pixels of a token, and widths and heights of two pictures that the processor does not scale."""
FAMILIES = mostly_slow(READ, "qwen2_5_vl", "gemma3", "idefics3")
TILED = ("internvl", "idefics3", "llava_next", "llava_onevision")

Pictures = Callable[..., list[Path]]


class PixtralStandIn:
    """What transformers' processor of Pixtral writes, which it loads with torchvision alone."""

    image_token, chat_template = "[IMG]", "there is one"

    def __init__(self, folder: Path, merge: int) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.image_processor = transformers.AutoImageProcessor.from_pretrained(folder)
        self.patch_size, self.spatial_merge_size = 4, merge

    def apply_chat_template(self, messages: Any, **_: Any) -> str:
        parts = messages[0]["content"]
        return "".join("[IMG]" if p["type"] == "image" else f" {p['text']}" for p in parts)

    def __call__(self, text: str, images: list[Any], **_: Any) -> dict[str, Any]:
        step = self.patch_size * self.spatial_merge_size
        made = self.image_processor(images=images, patch_size=step, return_tensors="pt")
        first, *others = text.split("[IMG]")
        for (high, wide), other in zip(made["image_sizes"].tolist(), others, strict=True):
            rows = ["[IMG]" * (wide // step)] * (high // step)
            first += "[IMG_BREAK]".join(rows) + "[IMG_END]" + other
        ids = self.tokenizer(first, return_tensors="pt", add_special_tokens=False)["input_ids"]
        return {"input_ids": ids, **made}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, read_once: set[str]) -> Callable[[str], Path]:
    @cache
    def write(family: str) -> Path:
        build(family, path := tmp_path_factory.mktemp(family))
        read_once.add(str(path))
        return path

    return write


@pytest.fixture(scope="module")
def sources(folder: Callable[[str], Path]) -> Callable[[str], Any]:
    @cache
    def load(family: str) -> Any:
        source = av.load(str(folder(family)))
        if family in ("pixtral", "mistral3"):
            merge = 2 if family == "mistral3" else 1
            source.__dict__["_processor"] = PixtralStandIn(folder(family), merge)
        return source

    return load


@pytest.fixture
def read_once_by_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that several commands name is read once."""
    monkeypatch.setattr(pretrained, "load", cache(pretrained.load))


@pytest.fixture
def pictures(tmp_path: Path) -> Pictures:
    def write(sizes: Any, change: Any = None, start: int = 0) -> list[Path]:
        """Noise of some widths and heights; ``change``: the picture, and the block to make red."""
        paths = []
        for number, (wide, high) in enumerate(sizes, 1):
            pixels = np.random.default_rng(number).integers(0, 256, (high, wide, 3), np.uint8)
            if change is not None and change[0] == number:
                left, top, right, bottom = change[1]
                pixels[top:bottom, left:right] = 255 - pixels[top:bottom, left:right]
            paths.append(tmp_path / f"{start}-{number}.png")
            Image.fromarray(pixels).save(paths[-1])
        return paths

    return write


def pixels_of(path: Path) -> NDArray[np.uint8]:
    return np.asarray(Image.open(path).convert("RGB"))


def keys(inputs: Any) -> Any:
    return inputs.sides["decoder"].keys


def embedded(source: Any, paths: list[Path]) -> tuple[Any, torch.Tensor]:
    """The tokens, and what enters the first layer of the language model [T, D]."""
    inputs = source.prepare(Prompt(TEXT, image=paths))
    states = source.forward([inputs], request=ForwardRequest(states=True)).states
    return keys(inputs), states[0][0]


def attend_to_nothing(source: Any) -> None:
    """The tower's layers see one patch each."""
    found = 0
    for name, module in source._network.model.named_modules():
        if "vis" in name and re.search(r"(attn\.proj|out_proj|projection_layer|o_proj)$", name):
            found += 1
            torch.nn.init.zeros_(module.weight)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
    assert found == 2, "the tower has two layers"


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_and_logits_are_those_of_eager_attention(
    family: str, sources: Any, pictures: Pictures
) -> None:
    source = sources(family)
    assert source.no_logits == ""
    capture = av.capture(Prompt(TEXT, image=pictures(READ[family][1])), model=source)
    logits = source.forward([capture.inputs], request=ForwardRequest(logits=True)).logits[0]
    ids = torch.tensor([keys(capture.inputs).ids])
    model = source._network.model
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        made = model(input_ids=ids, attention_mask=torch.ones_like(ids),
                     **capture.inputs.features, output_attentions=True)  # fmt: skip
    model.set_attn_implementation(before)
    assert len(made.attentions) == 2
    same_maps(capture, made.attentions, within=1e-5)
    np.testing.assert_allclose(logits, made.logits[0], rtol=0, atol=1e-5)
    assert type(model).__name__.endswith("ForConditionalGeneration")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_change_of_a_patch_moves_its_tokens_alone(
    family: str, tmp_path: Path, pictures: Pictures, sources: Any
) -> None:
    source = sources(family)
    step, sizes = READ[family]
    attend_to_nothing(source)
    tokens, plain = embedded(source, pictures(sizes))
    where = dict(zip(tokens.texts, range(len(tokens)), strict=True))
    for number, (wide, high) in enumerate(sizes, 1):
        rows, columns = high // step, wide // step
        assert {text for text in where if text.startswith(f"{number}:")} >= {
            f"{number}:{r},{c}" for r in range(rows) for c in range(columns)
        }
        for row, column in ((0, 0), (rows - 1, columns - 1), (1, 0), (0, columns - 1)):
            box = (column * step, row * step, (column + 1) * step, (row + 1) * step)
            _, changed = embedded(source, pictures(sizes, (number, box), 1))
            moved = (changed - plain).abs().sum(-1)
            fine = [text for text, n in where.items() if moved[n] > 0 and "whole" not in text]
            assert fine == [f"{number}:{row},{column}"]
            whole = [text for text in where if text.startswith(f"{number}:whole:")]
            assert bool(whole) == (family in TILED)
            if whole:  # resampling blurs: its own patch moves most
                most = max(whole, key=lambda text: float(moved[where[text]]))
                crop = Crop(1, "", (wide, high), (0, 0, wide, high), *_size(whole), whole=True)
                ((r, c),) = crop.with_centre(box)
                assert most == f"{number}:whole:{r},{c}"


def _size(names: list[str]) -> tuple[int, int]:
    rows, columns = zip(*(map(int, name.split(":")[2].split(",")) for name in names), strict=True)
    return max(rows) + 1, max(columns) + 1


@pytest.mark.parametrize("family", FAMILIES)
def test_every_picture_stands_in_the_sheet_at_its_size(
    family: str, sources: Any, pictures: Pictures
) -> None:
    step, sizes = READ[family]
    paths = pictures(sizes)
    inputs = sources(family).prepare(Prompt(TEXT, image=paths))
    sheet, tokens = inputs.picture, keys(inputs)
    assert [crop.number for crop in sheet.crops if not crop.whole] == [1, 2]
    for crop, (wide, high), path in zip(
        (crop for crop in sheet.crops if not crop.whole), sizes, paths, strict=True
    ):
        assert (crop.size, crop.box) == ((wide, high), (0, 0, wide, high))
        assert (crop.rows, crop.columns) == (high // step, wide // step)
        top = crop.row * step
        shown = sheet.pixels[top : top + high, :wide].astype(int)
        assert abs(shown - pixels_of(path)).max() <= 1
        for row, column in ((0, 0), (crop.rows - 1, crop.columns - 1)):
            assert (crop.row + row, column) in tokens.places
    assert len({place for place in tokens.places if place}) == sum(map(bool, tokens.places))
    ends = [crop.row + crop.rows for crop in sheet.crops]
    assert all(a < b.row for a, b in zip(ends, sheet.crops[1:], strict=False)), "a row apart"
    assert sheet.rows == ends[-1]
    assert tokens.texts[-4:] == ("what", "is", "this", "?")


@pytest.mark.parametrize("size", [(50, 70), (70, 50)])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_scaled_or_padded_picture_is_where_its_boxes_say(
    family: str, size: tuple[int, int], sources: Any, pictures: Pictures
) -> None:
    """A change of a block moves that token most whose patch shows the block's centre."""
    source = sources(family)
    attend_to_nothing(source)
    tokens, plain = embedded(source, pictures([size]))
    crops = source.prepare(Prompt(TEXT, image=pictures([size])[0])).picture.crops
    centres = ((6, 8), (44, 9), (27, 37), (8, 63), (45, 62))
    for centre in centres if size[0] < size[1] else [(y, x) for x, y in centres]:
        block = (centre[0] - 2, centre[1] - 2, centre[0] + 2, centre[1] + 2)
        _, changed = embedded(source, pictures([size], (1, block), 1))
        moved = (changed - plain).abs().sum(-1)
        for crop in crops:
            mine = [n for n, place in enumerate(tokens.places)
                    if place and crop.row <= place[0] < crop.row + crop.rows]  # fmt: skip
            assert crop.size == size
            row, column = tokens.places[max(mine, key=lambda n: float(moved[n]))]
            patch = crop.patch(int(row) - crop.row, int(column))
            assert patch[0] - 3 < centre[0] < patch[2] + 3
            assert patch[1] - 3 < centre[1] < patch[3] + 3


def test_without_num2words_smolvlm_says_so(tmp_path: Path) -> None:
    build("smolvlm", tmp_path)
    picture = tmp_path / "a.png"
    Image.new("RGB", (32, 48)).save(picture)
    if transformers.utils.is_num2words_available():
        pytest.skip("num2words is installed")
    with pytest.raises(ModelError, match="num2words"):
        av.capture(Prompt(TEXT, image=picture), model=str(tmp_path))


def test_what_a_tile_shows_is_measured() -> None:
    plain = SimpleNamespace(do_normalize=False, do_rescale=False)

    def tile(pixels: NDArray[np.uint8]) -> torch.Tensor:
        return torch.tensor(pixels).permute(2, 0, 1)

    one, two = ramp((120, 80), 1), ramp((40, 60), 2)
    small = np.asarray(Image.fromarray(one).resize((40, 40), Image.Resampling.BICUBIC))
    padded = np.zeros((40, 40, 3), np.uint8)
    padded[10:34] = Image.fromarray(one).resize((40, 24), Image.Resampling.BILINEAR)
    values = [one[40:80, 60:100], small, padded, np.zeros((40, 40, 3), np.uint8), two[:40]]
    stacked = torch.stack([tile(pixels) for pixels in values])
    found = tiles_of(stacked, [(120, 80), (40, 60)], plain)
    assert found[3] is None, "nothing but padding"
    assert [n for n, _ in filter(None, found)] == [1, 1, 1, 2]
    boxes = [box for _, box in filter(None, found)]
    np.testing.assert_allclose(boxes[0], (60, 40, 100, 80), atol=0.5)
    assert boxes[1] == (0, 0, 120, 80)
    np.testing.assert_allclose(boxes[2], (0, -80 * 10 / 24, 120, 80 * 30 / 24), atol=1.5)
    np.testing.assert_allclose(boxes[3], (0, 0, 40, 40), atol=0.5)
    turned = torch.flip(stacked[1:2], [-1])
    assert tiles_of(turned, [(120, 80), (40, 60)], plain) is None, "a mirrored picture"


def test_rows_with_a_mark_behind_each() -> None:
    assert _shape(4 * 9, 4, 8) == (4, 8)
    assert _shape(12 * 17, 18, 24) == (12, 16), "both scaled by the same ratio"
    assert _shape(12 * 13, 18, 24) is None


def test_learned_queries_have_no_place(tmp_path: Path, pictures: Pictures) -> None:
    """16 of them would fill 4 x 4 patches, but no patch moves its own."""
    build("idefics2", tmp_path)
    source = av.load(str(tmp_path))
    inputs = source.prepare(Prompt(TEXT, image=pictures([(32, 32)])[0]))
    assert inputs.picture is None
    assert not keys(inputs).places
    said = "The picture is 16 tokens; where in it each of them lies is not known."
    assert inputs.notes == (said,)


def test_patches_in_another_order_are_not_taken_for_these(
    sources: Any, pictures: Pictures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns in place of rows: the proof on the model itself notices."""
    source = sources("qwen2_5_vl")
    plain = vision_language.seen_crops

    def turned(*given: Any) -> Any:
        (seen,) = plain(*given)
        order = np.arange(seen.order.size).reshape(seen.order.shape[::-1]).T
        return [replace(seen, order=order)]

    asked = Prompt(TEXT, image=pictures([(24, 40)])[0])
    monkeypatch.setattr(source, "_proof", None)
    assert source.prepare(asked).picture is not None
    monkeypatch.setattr(source, "_proof", None)
    monkeypatch.setattr(vision_language, "seen_crops", turned)
    assert source.prepare(asked).picture is None


def test_films_and_unknown_cuts_have_no_places(
    sources: Any, pictures: Pictures, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sources("qwen2_5_vl")
    monkeypatch.setattr(vision_language, "seen_crops", lambda *_: None)
    inputs = source.prepare(Prompt(TEXT, image=pictures([(24, 40)])[0]))
    assert inputs.picture is None
    assert not keys(inputs).places
    assert inputs.notes == (
        "The picture is 15 tokens; where in it each of them lies is not known.",
    )
    with pytest.raises(InputError, match="where in the picture this model's tokens lie is not"):
        source.prepare(Prompt(TEXT, image=pictures([(24, 40)])[0], spans={"cup": "box:0,0,8,8"}))


@pytest.mark.usefixtures("read_once_by_commands")
@pytest.mark.parametrize(
    "family", mostly_slow(["qwen3_vl", "gemma3", "internvl", "idefics3"], "qwen3_vl", "internvl")
)
def test_commands_read_several_pictures(
    family: str, folder: Any, tmp_path: Path, pictures: Pictures, capsys: Any
) -> None:
    first, second = map(str, pictures(READ[family][1]))
    model = folder(family)
    given = ["what is this ?", "--image", first, "--image", second, "--model", str(model)]
    assert main(["heatmap", *given, "--query", "2:0,1"]) == 0
    said = capsys.readouterr().out
    assert "from patch 2:0,1; most on patch " in said
    assert main(["heatmap", *given]) == 0
    assert "; most on patch " in (said := capsys.readouterr().out)
    assert re.search(r"from token \d+ \?;", said), "the last of the text, whatever it begins with"
    assert main(["heatmap", *given, "--query", "2:0,99"]) == 2
    assert "no patch 2:0,99; the last patch is 2:" in capsys.readouterr().err
    boxes = ["--span", "cup=box2:0,0,16,16", "--span", "what=what is"]
    assert main(["spans", *given, *boxes, "--json"]) == 0
    spans = json.loads(capsys.readouterr().out)["spans"]
    assert [span["shown"] for span in spans[:2]] == ["box2:0,0,16,16", "what is"]
    assert spans[0]["tokens"] == (5 if family == "internvl" else 4), "two patches each way"
    page = tmp_path / "page.html"
    assert main(["view", *given, *boxes, "-o", str(page)]) == 0
    scene = data_of(page.read_bytes())["items"][0]["scene"]
    crops = [crop["called"] for crop in scene["crops"]]
    assert crops == (["1:", "1:whole:", "2:", "2:whole:"] if family in TILED else ["1:", "2:"])


def test_files_keep_which_patches_are_of_which_picture(
    sources: Any, pictures: Pictures, tmp_path: Path
) -> None:
    asked = Prompt(TEXT, image=pictures([(24, 40), (32, 16)]), spans={"cup": "box2:0,0,16,16"})
    capture = av.capture(asked, model=sources("qwen2_5_vl"))
    again = av.read(av.write_capture(capture, tmp_path / "kept.npz"))
    assert again.inputs.picture.crops == capture.inputs.picture.crops
    assert keys(again.inputs).spans == keys(capture.inputs).spans
    assert str(keys(again.inputs).spans[0].box) == "box2:0,0,16,16"
    np.testing.assert_array_equal(again.inputs.picture.pixels, capture.inputs.picture.pixels)


def test_models_of_one_picture_take_one(tmp_path: Path, pictures: Pictures) -> None:
    build_vit("vit", tmp_path)
    source = av.load(str(tmp_path))
    with pytest.raises(UsageError, match="this model looks at one picture; give image once"):
        source.prepare(Prompt(image=pictures([(32, 32), (32, 32)])))
    with pytest.raises(UsageError, match="the list of pictures is empty"):
        Prompt(image=[])


def test_a_text_with_pictures_writes_nothing_on(sources: Any, pictures: Pictures) -> None:
    asked = Prompt(TEXT, image=pictures([(24, 40)])[0], generate=Generation(3))
    with pytest.raises(UsageError, match="generates no text"):
        sources("qwen2_5_vl").prepare(asked)


BOXES = {
    "8,8,16,24": ["1,1", "2,1"],
    "12,8,20,16": ["1,1", "1,2"],  # half of either
    "13,8,21,16": ["1,2"],
    "0,0,24,4": ["0,0", "0,1", "0,2"],
    "0,0,24,3": ["0,1"],  # half of none: the centre's
    "9,9,11,11": ["1,1"],
    "23,39,24,40": ["4,2"],
    "0,0,24,40": [f"{row},{column}" for row in range(5) for column in range(3)],
}


@pytest.mark.parametrize("box", BOXES)
def test_a_box_is_the_patches_that_it_half_covers(
    box: str, sources: Any, pictures: Pictures
) -> None:
    """A picture of 24 x 40 pixels, in patches of 8 x 8."""
    source = sources("qwen2_5_vl")
    asked = Prompt(TEXT, image=pictures([(24, 40)])[0], spans={"cup": f"box:{box}"})
    inputs = source.prepare(asked)
    tokens = keys(inputs)
    (span,) = tokens.spans
    assert [tokens.texts[place] for place in span.positions] == BOXES[box]
    said = "Span 'cup' covers half of no patch; that with its centre is taken."
    assert (said in inputs.notes) == (box in ("0,0,24,3", "9,9,11,11", "23,39,24,40"))


TILED_BOXES = {
    "0,0,16,24": ["0,0", "0,1", "1,0", "1,1", "2,0", "2,1", "whole:0,0"],
    "16,0,32,12": ["0,2", "0,3", "1,2", "1,3", "whole:0,1"],
    "0,0,8,8": ["0,0"],
    "1,1,2,2": ["0,0", "whole:0,0"],  # half of none: those with its centre
}


@pytest.mark.parametrize("box", TILED_BOXES)
def test_a_box_of_a_picture_in_tiles_is_of_both_sizes(
    box: str, sources: Any, pictures: Pictures
) -> None:
    """32 x 48 pixels: patches of 8 x 8, and 2 x 2 of 16 x 24 in the small whole."""
    asked = Prompt(TEXT, image=pictures([(32, 48)])[0], spans={"cup": f"box:{box}"})
    tokens = keys(sources("idefics3").prepare(asked))
    mine = sorted(tokens.texts[place] for place in tokens.spans[0].positions)
    assert mine == TILED_BOXES[box]


SPANS = {"words": "what is", "mark": "?", "few": "chars:8-11", "any": "regex:th.s"}


@pytest.mark.parametrize("family", ["qwen2_5_vl", "gemma3", "idefics3", "pixtral"])
def test_words_and_boxes_of_one_text(family: str, sources: Any, pictures: Pictures) -> None:
    step, sizes = READ[family]
    boxes = {"sky": f"box:0,0,{sizes[0][0]},{step}", "side": f"box2:0,0,{step},{sizes[1][1]}"}
    named = {name: text for name, text in SPANS.items() if name != "any"}
    asked = Prompt(TEXT, image=pictures(sizes), spans={**named, **boxes})
    tokens = keys(sources(family).prepare(asked))
    said = {span.name: [tokens.texts[n] for n in span.positions] for span in tokens.spans}
    assert (said["words"], said["mark"], said["few"]) == (["what", "is"], ["?"], ["this"])
    assert said["sky"] == [f"1:0,{column}" for column in range(sizes[0][0] // step)]
    assert said["side"] == [f"2:{row},0" for row in range(sizes[1][1] // step)]
    found = Prompt(TEXT, image=asked.image, spans={"any": SPANS["any"]})
    (span,) = keys(sources(family).prepare(found)).spans
    assert [tokens.texts[n] for n in span.positions] == ["this"]


def test_a_box_in_a_picture_alone(tmp_path: Path, pictures: Pictures) -> None:
    """A vision transformer that cuts the middle out of a picture: 32 x 32 pixels of 40 x 80."""
    build_vit("dinov2", tmp_path)
    source = av.load(str(tmp_path), reads="image")
    (path,) = pictures([(80, 40)])

    def boxed(box: str) -> list[str]:
        tokens = source.prepare(Prompt(image=path, spans={"cup": box})).sides["encoder"].keys
        return [tokens.texts[place] for place in tokens.spans[0].positions]

    assert boxed("box:24,4,32,12") == ["0,0"]
    assert boxed("box:48,28,56,36") == ["3,3"]
    with pytest.raises(InputError, match="'cup' lies where the model sees nothing of the picture"):
        boxed("box:0,0,10,40")
    with pytest.raises(UsageError, match="'cup' is looked for in a text, and there is none"):
        boxed("tree")


BAD = {
    "box:0,0,30,10": (1, "span 'cup' reaches beyond 0-1.png, which has 24 × 40 pixels"),
    "box:5,5,5,10": (2, "span 'cup': the box 5,5,5,10 has no area"),
    "box:9,5,5,10": (2, "span 'cup': the box 9,5,5,10 has no area"),
    "box:1,2,3": (2, "span 'cup': '1,2,3' is no box; write box:10,20,80,90"),
    "box:-1,2,3,4": (2, "span 'cup': '-1,2,3,4' is no box"),
    "box2:0,0,8,8": (1, "span 'cup' is a box of picture 2; one picture is given"),
    "all:box:0,0,8,8": (2, "span 'cup': a box is in one place"),
}


@pytest.mark.usefixtures("read_once_by_commands")
def test_bad_boxes_get_one_clear_line(
    folder: Any, pictures: Pictures, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(folder("qwen2_5_vl"))
    (path,) = pictures([(24, 40)])
    given = ["spans", TEXT, "--model", model]
    capsys.readouterr()
    for box, (code, said) in BAD.items():
        assert main([*given, "--image", str(path), "--span", f"cup={box}"]) == code
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith(f"attnviz: {said}"), line
    for reader in (model, "demo-gpt2"):
        code = main(["spans", TEXT, "--model", reader, "--span", "cup=box:0,0,8,8"])
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert code == 2
        assert "span 'cup' is a box of a picture, and there is none; give one with --image" in line
    code = main(["spans", TEXT, "--image", str(path), "--span", "cup=box:0,0,8,8"])
    assert code == 2
    assert "image is for vision models" in capsys.readouterr().err


@pytest.mark.usefixtures("read_once_by_commands")
@pytest.mark.parametrize("family", ["gemma3", "internvl"])
def test_a_box_is_cut_off_from_the_last_token(
    family: str, folder: Any, pictures: Pictures, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = map(str, pictures(READ[family][1]))
    given = [TEXT, "--image", first, "--image", second, "--model", str(folder(family))]
    capsys.readouterr()
    boxed = ["--span", "cup=box2:0,0,16,16", "--json"]
    assert main(["knockout", *given, *boxed, "--answer", "sun", "--keys", "cup"]) == 0
    result = json.loads(capsys.readouterr().out)
    (cup,) = (span for span in result["spans"] if span["name"] == "cup")
    assert (cup["tokens"], cup["shown"]) == (4 + (family in TILED), "box2:0,0,16,16")
    assert main(["ablate", *given, *boxed, "--method", "zero", "--position", "span:cup"]) == 0
    assert json.loads(capsys.readouterr().out)["effects"]
    assert main(["thoughts", *given, *boxed]) in (0, 1, 2)
    assert "is in 2 pieces; a sentence of a trace is one" in capsys.readouterr().err
