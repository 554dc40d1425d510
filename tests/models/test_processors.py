"""Pictures and sound against transformers' own eager attention, on tiny models of each family."""

from __future__ import annotations

import json
import shutil
import wave
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.cli import main
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.models import hooked
from attnviz.models.containers import read_picture, read_sound, resampled
from attnviz.scoring.observe import Recorder
from tests import ROOT
from tests.models.test_reasons import rebuilt
from tests.models.tiny import same_maps
from tests.models.tiny_senses import (
    CROPPED,
    PATCH,
    PICTURES,
    SENSING,
    SIDE,
    SOUNDS,
    build,
    build_llava,
    transformers,
)

Image = pytest.importorskip("PIL.Image")
soundfile = pytest.importorskip("soundfile")

HOUSE, TONES = ROOT / "sample_inputs/house.png", ROOT / "sample_inputs/tones.wav"
CPU = torch.device("cpu")
TARGET = (3, 9, 17, 5, 30, 22)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    built: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in built:
            built[family] = tmp_path_factory.mktemp(family)
            build(family, built[family])
        return built[family]

    return folder


def prompt(family: str) -> Prompt:
    return Prompt(image=HOUSE) if family in PICTURES else Prompt(audio=TONES)


@cache
def load(folder: Path, family: str) -> hooked.Hooked:
    """A model of a folder that nobody changes, read once."""
    reads = "image" if family in PICTURES else "text"
    return hooked.load(folder, family, CPU, torch.float32, reads=reads)


def eager(folder: Path, family: str) -> tuple[dict[Site, Any], Any]:
    """Weights [H, T, S] by site, as transformers returns them, and what its processor made."""
    kind = {"clip": "CLIPVisionModel", "siglip": "SiglipVisionModel"}.get(family, "AutoModel")
    model = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager").eval()
    if family in PICTURES:
        processor = transformers.AutoImageProcessor.from_pretrained(folder)
        made = processor(images=Image.open(HOUSE).convert("RGB"), return_tensors="pt")
    else:
        with wave.open(str(TONES)) as file:
            data = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
        processor = transformers.AutoFeatureExtractor.from_pretrained(folder)
        made = processor(data.astype(np.float32), sampling_rate=16000, return_tensors="pt")
    made.pop("attention_mask", None)
    extra = {"decoder_input_ids": torch.tensor([TARGET])} if family == "whisper" else {}
    with torch.no_grad():
        output = model(**made, **extra, output_attentions=True)
    if family == "whisper":
        kinds = ("encoder", "decoder", "cross")
        found = {Site(k, n): w[0] for k in kinds for n, w in enumerate(output[f"{k}_attentions"])}
    else:
        found = {Site("encoder", n): w[0] for n, w in enumerate(output.attentions)}
    return found, made


@pytest.mark.parametrize("family", SENSING)
def test_every_family_equals_its_own_eager_attention(
    family: str, models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = models(family)
    source = load(folder, family)
    assert source.info.exactness.startswith("hooked, max |Δ| "), source.info
    if family == "whisper":
        monkeypatch.setattr(source._network, "write", lambda *_, **__: TARGET)
    capture = av.capture(prompt(family), model=source)
    native, _ = eager(folder, family)
    assert list(capture.maps) == sorted(native, key=list(native).index)
    for site, weights in native.items():
        np.testing.assert_allclose(capture.maps[site], weights, rtol=0, atol=1e-5)
        assert weights.max() * weights.shape[-1] > 1.3, "too even to prove anything"


@pytest.mark.parametrize("family", SENSING)
def test_two_at_once_are_as_one_alone(family: str, models: Any) -> None:
    source = load(models(family), family)
    inputs = source.prepare(prompt(family))
    one, two = Recorder([inputs]), Recorder([inputs, inputs])
    source.forward([inputs], [one])
    source.forward([inputs, inputs], [two])
    for site, weights in one.maps().items():
        np.testing.assert_allclose(two.maps(1)[site], weights, rtol=0, atol=1e-6)


ADDED = {
    "vit": ["[CLS]"],
    "deit": ["[CLS]", "[DIST]"],
    "dinov2_with_registers": ["[CLS]", "[REG1]", "[REG2]", "[REG3]"],
    "siglip": [],
}


@pytest.mark.parametrize("family", ADDED)
def test_patches_have_a_row_and_a_column(family: str, models: Any) -> None:
    tokens = load(models(family), family).prepare(prompt(family)).sides["encoder"].keys
    added = len(ADDED[family])
    assert list(tokens.texts[:added]) == ADDED[family]
    assert tokens.places[:added] == ((),) * added
    assert all(tokens.special[:added])
    assert not any(tokens.special[added:])
    count = SIDE // PATCH
    assert tokens.places[added:] == tuple((r, c) for r in range(count) for c in range(count))
    assert tokens.texts[added + 6] == "1,2"
    assert tokens.space == "patches"
    assert len(set(tokens.identity)) == len(tokens)


def test_a_patch_is_where_it_says(models: Any, tmp_path: Path) -> None:
    """A change in one patch changes that patch's state most, before attention mixes them."""
    pixels = np.full((SIDE, SIDE, 3), 120, np.uint8)
    Image.fromarray(pixels).save(tmp_path / "plain.png")
    pixels[8:16, 16:24] = (250, 30, 30)
    Image.fromarray(pixels).save(tmp_path / "dot.png")
    source = load(models("vit"), "vit")
    plain, dot = (source.prepare(Prompt(image=tmp_path / f"{n}.png")) for n in ("plain", "dot"))
    states = [
        source.forward([one], request=ForwardRequest(states=True)).states[0][0]
        for one in (plain, dot)
    ]
    (changed,) = (states[0] - states[1]).abs().sum(-1).nonzero().flatten().tolist()
    assert dot.sides["encoder"].keys.places[changed] == (1, 2)
    np.testing.assert_array_equal(dot.picture.pixels, pixels)


def test_the_picture_is_the_part_that_the_model_sees(models: Any, tmp_path: Path) -> None:
    """A wide picture is cropped: what is shown is the middle."""
    wide = np.zeros((40, 80, 3), np.uint8)
    wide[:, :20] = (255, 0, 0)
    wide[:, 30:50] = (0, 255, 0)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    picture = load(models("dinov2"), "dinov2").prepare(Prompt(image=tmp_path / "wide.png")).picture
    assert picture.pixels.shape == (SIDE, SIDE, 3)
    assert (picture.rows, picture.columns) == (4, 4)
    assert tuple(picture.pixels[16, 16]) == (0, 255, 0)
    assert not (picture.pixels[..., 0] > 200).any(), "the left edge is cropped away"


def test_frames_have_a_time(models: Any) -> None:
    source = load(models("wav2vec2"), "wav2vec2")
    inputs = source.prepare(Prompt(audio=TONES))
    tokens = inputs.sides["encoder"].keys
    assert len(tokens) == ((16000 - 10) // 40 + 1 - 3) // 8 + 1 == 49 + 1
    assert tokens.space == "frames"
    # 90 samples a frame, 320 from one to the next
    assert tokens.places[0] == pytest.approx((45 / 16000,))
    assert tokens.places[10] == pytest.approx(((3200 + 45) / 16000,))
    assert inputs.sound.seconds == 1.0


def test_silence_that_whisper_adds_is_marked(models: Any) -> None:
    inputs = load(models("whisper"), "whisper").prepare(Prompt(audio=TONES))
    keys = inputs.sides["cross"].keys
    assert len(keys) == 100
    assert keys.places[49] == pytest.approx((0.99,))
    assert keys.special == (False,) * 50 + (True,) * 50
    assert keys.texts[50] == "[PAD]"
    assert keys.space == "frames"
    written = inputs.sides["decoder"].queries
    assert written.ids[0] == 3, "what the decoder reads begins with its start"
    assert inputs.sides["cross"].queries is written
    assert "generated greedily" in inputs.notes[0]


def test_whisper_takes_a_target(models: Any, tmp_path: Path) -> None:
    shutil.copytree(models("whisper"), tmp_path / "whisper")
    with pytest.raises(ModelError, match="has no tokenizer"):
        av.capture(Prompt(audio=TONES, target="hello"), model=str(tmp_path / "whisper"))


def test_either_tower_of_clip(models: Any) -> None:
    folder = models("clip")
    text = av.capture(Prompt(ids=(1, 7, 30, 2)), model=str(folder))
    image = av.capture(Prompt(image=HOUSE), model=str(folder))
    assert text.layout.kinds == ("decoder",)
    assert image.layout.kinds == ("encoder",)
    assert len(image.inputs.sides["encoder"].keys) == 17
    tower = transformers.CLIPTextModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        native = tower(torch.tensor([[1, 7, 30, 2]]), output_attentions=True).attentions
    same_maps(text, native, within=1e-5)
    loaded = av.load(str(folder))
    with pytest.raises(UsageError, match="this model reads text; image is for vision models"):
        av.capture(Prompt(image=HOUSE), model=loaded)


@pytest.mark.parametrize("family", ["clip", "vit"])
def test_a_text_beside_a_picture_is_refused(
    family: str, models: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was asked for the file that it had been given."""
    args = ["heads", "a cat", "--image", str(HOUSE), "--model", str(models(family))]
    capsys.readouterr()
    assert main(args) == 2
    told = "this model reads no text together with pictures; leave out the text"
    assert capsys.readouterr().err == f"attnviz: {told}\n"


@pytest.mark.parametrize("family", ["vit", "deit", "clip", "siglip", "wav2vec2"])
def test_what_stands_around_attention_is_known(family: str, models: Any) -> None:
    """CLIP's last layer too, of which only the first row goes on."""
    source = load(models(family), family)
    orders = {source.sublayer(site).order for site in source.layout.sites}
    assert orders == {"post" if family == "wav2vec2" else "pre"}
    flow = av.flow(prompt(family), model=source)
    assert flow.method == "alti"


@pytest.mark.parametrize("family", ["vit", "clip", "wav2vec2", "whisper"])
def test_weights_come_out_of_queries_and_keys(family: str, models: Any) -> None:
    capture = av.capture(prompt(family), model=load(models(family), family), why="*.*")
    assert set(capture.terms) == set(capture.layout)
    assert rebuilt(capture) < 1e-5
    assert all(terms.written for terms in capture.terms.values())


def test_windows_are_refused_by_name(tmp_path: Path) -> None:
    sizes = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "window_size": 4}
    config = transformers.SwinConfig(**sizes, depths=[1, 1], num_heads=[2, 2])
    transformers.SwinModel(config).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "ViTImageProcessor", **CROPPED})
    )
    with pytest.raises(ModelError, match="swin models attend inside windows that differ"):
        load(tmp_path, "vit")


def test_what_is_no_picture_is_refused_in_one_line(
    models: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(models("vit"))
    for name, content in (("empty.png", b""), ("text.png", b"no picture"), ("cut.png", b"")):
        (tmp_path / name).write_bytes(content or HOUSE.read_bytes()[:2000] * (name == "cut.png"))
        with pytest.raises(InputError, match=r"cannot read .*\.png as a picture: "):
            av.capture(Prompt(image=tmp_path / name), model=folder)
    with pytest.raises(InputError, match=r"none\.png is missing; give a file"):
        av.capture(Prompt(image=tmp_path / "none.png"), model=folder)
    with pytest.raises(UsageError, match="this model reads pictures, not text; give it a file"):
        av.capture("The cat sat", model=folder)
    text = tmp_path / "text.txt"
    text.write_text("The cat sat")
    assert main(["profile", str(text), "-m", folder]) == 1  # which has no --image
    said = "reads pictures, not text; give it a file with attnviz heads --image"
    assert said in " ".join(capsys.readouterr().err.split())
    with pytest.raises(UsageError, match="this model reads pictures; audio is for audio models"):
        av.capture(Prompt(audio=TONES), model=folder)
    with pytest.raises(UsageError, match="this model reads text; image is for vision models"):
        av.capture(Prompt(image=HOUSE), model="demo-bert")
    with pytest.raises(UsageError, match="give either image or audio"):
        av.capture(Prompt(image=HOUSE, audio=TONES), model=folder)


def test_what_is_no_sound_is_refused_in_one_line(models: Any, tmp_path: Path) -> None:
    folder = str(models("wav2vec2"))
    (tmp_path / "text.wav").write_bytes(b"no sound")
    with pytest.raises(InputError, match=r"cannot read .*text\.wav as a sound: "):
        av.capture(Prompt(audio=tmp_path / "text.wav"), model=folder)
    soundfile.write(tmp_path / "none.wav", np.zeros(0, np.float32), 16000)
    with pytest.raises(InputError, match="holds no sound"):
        av.capture(Prompt(audio=tmp_path / "none.wav"), model=folder)


def test_a_folder_without_a_processor_says_so(models: Any, tmp_path: Path) -> None:
    shutil.copytree(models("vit"), tmp_path / "vit")
    (tmp_path / "vit/preprocessor_config.json").unlink()
    with pytest.raises(ModelError, match="does not say how to prepare them; add preprocessor_con"):
        load(tmp_path / "vit", "vit")


def test_a_missing_extra_is_named(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = load(models("wav2vec2"), "wav2vec2")
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(UsageError, match=r"pip install \"attnviz\[audio\]\""):
        source.prepare(prompt("wav2vec2"))


def test_pictures_are_upright_and_without_transparency(tmp_path: Path) -> None:
    lying = Image.new("RGB", (4, 2), "red")
    exif = lying.getexif()
    exif[0x0112] = 6  # turned by a quarter
    lying.save(tmp_path / "turned.jpg", exif=exif)
    assert read_picture(tmp_path / "turned.jpg").shape == (4, 2, 3)
    Image.new("RGBA", (2, 2), (9, 9, 9, 0)).save(tmp_path / "clear.png")
    assert (read_picture(tmp_path / "clear.png") == 255).all()


def test_sounds_are_resampled_and_mixed(tmp_path: Path) -> None:
    time = np.arange(22050) / 22050
    tone = np.sin(2 * np.pi * 440 * time).astype(np.float32)
    soundfile.write(tmp_path / "stereo.wav", np.stack([tone, 0 * tone], 1), 22050, "FLOAT")
    found = read_sound(tmp_path / "stereo.wav", 16000)
    expected = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000) / 2
    np.testing.assert_allclose(found, expected, atol=1e-4)
    same = resampled(tone, 22050, 22050)
    assert same is tone


@pytest.mark.parametrize("family", SOUNDS)
def test_sounds_of_any_length(family: str, models: Any, tmp_path: Path) -> None:
    source = load(models(family), family)
    half = read_sound(TONES, 16000)[:9000]
    soundfile.write(tmp_path / "half.wav", half, 16000, "FLOAT")
    capture = av.capture(Prompt(audio=tmp_path / "half.wav"), model=source)
    kind = "cross" if family == "whisper" else "encoder"
    keys = capture.inputs.sides[kind].keys
    assert capture.maps[Site(kind, 0)].shape[-1] == len(keys)


def test_a_picture_in_a_text(tmp_path: Path) -> None:
    processor = build_llava(tmp_path)
    source = av.load(str(tmp_path))
    capture = av.capture(Prompt(text="what is this ?", image=HOUSE), model=source)
    model = transformers.LlavaForConditionalGeneration.from_pretrained(
        tmp_path, attn_implementation="eager"
    ).eval()
    image = Image.open(HOUSE).convert("RGB")
    made = processor(text="<image>\nwhat is this ?", images=image, return_tensors="pt")
    with torch.no_grad():
        native = model(**made, output_attentions=True).attentions
    assert len(native) == len(capture.maps) == 2
    same_maps(capture, native, within=1e-5)
    keys = capture.inputs.sides["decoder"].keys
    assert keys.texts[:2] == ("0,0", "0,1")
    assert keys.texts[-4:] == ("what", "is", "this", "?")
    assert keys.places[5] == (1, 1)
    assert keys.places[-1] == ()
    assert keys.space == "text", "text as soon as one of them is text"
    assert (capture.inputs.picture.rows, capture.inputs.picture.columns) == (4, 4)
    alone = av.capture("what is this ?", model=source)
    assert len(alone.inputs.sides["decoder"].keys) == 4
    with pytest.raises(UsageError, match="reads a picture with one text"):
        av.capture(Prompt(image=HOUSE), model=source)


@pytest.mark.parametrize(
    ("family", "suffix"),
    [("dinov2_with_registers", ".npz"), ("dinov2_with_registers", ".safetensors"),
     ("whisper", ".npz"), ("wav2vec2", ".safetensors")],
)  # fmt: skip
def test_files_keep_the_picture_and_the_places(
    family: str, suffix: str, models: Any, tmp_path: Path
) -> None:
    capture = av.capture(prompt(family), model=load(models(family), family))
    path = av.write_capture(capture, tmp_path / f"kept{suffix}")
    again = av.read(path)
    for kind, sides in capture.inputs.sides.items():
        assert again.inputs.sides[kind].keys == sides.keys
        assert again.inputs.sides[kind].queries == sides.queries
    for kept, given in ((again.inputs.picture, capture.inputs.picture),):
        if given is None:
            assert kept is None
            continue
        np.testing.assert_array_equal(kept.pixels, given.pixels)
        assert (kept.rows, kept.columns, kept.name) == (4, 4, "house.png")
    if family in SOUNDS:
        np.testing.assert_array_equal(again.inputs.sound.samples, capture.inputs.sound.samples)
        assert again.inputs.sound.rate == 16000
    for site, weights in capture.maps.items():
        np.testing.assert_array_equal(again.maps[site], weights)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"places": np.zeros((3, 2))}, "places of shape"),
        ({"places": np.full((20, 2), -1.0)}, "negative or infinite"),
        ({"places": np.full((20, 2), 9.0)}, "patches outside of 4 × 4"),
        ({"picture": np.zeros((4, 4), np.uint8)}, "a picture of uint8"),
        ({"meta": np.array('{"picture": {}}')}, "where its tokens stand cannot be read"),
    ],
)
def test_files_with_other_places_are_refused(
    changes: dict[str, Any], said: str, models: Any, tmp_path: Path
) -> None:
    family = "dinov2_with_registers"
    capture = av.capture(prompt(family), model=load(models(family), family))
    path = av.write_capture(capture, tmp_path / "kept.npz")
    with np.load(path) as file:
        fields = {**file, **changes}
    np.savez(path, **fields)
    with pytest.raises(InputError, match=said):
        av.read(path)
