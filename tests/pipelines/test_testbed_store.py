"""What a testbed run keeps: nothing is computed twice, whoever shares the store."""

from __future__ import annotations

import importlib.util
import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from curate.errors import MissingExtraError, UsageError
from curate.files import TEMPORARY
from curate.labels.space import load_label_space
from curate.progress import Stop
from curate.testbed.known_settings import Settings
from pipelines.bench import Fault
from pipelines.corruption_models import TOGETHER
from pipelines.corruption_pictures import Pictures
from pipelines.ray_crew import own_code
from pipelines.testbed_models import Models
from pipelines.testbed_ray import Actor, Passed, Unit, Work, must_be_there
from pipelines.testbed_run import run_testbed
from pipelines.testbed_work import Run, Store
from tests.running import dying
from tests.waiting import PATIENCE

WNIDS = load_label_space("imagenet-1k").wnids

# It notes down how many pictures pass it, and writes where a test looks.
MODELS = """
from pathlib import Path

import torch

from curate.images.views import ViewRecipe
from curate.labels.space import load_label_space
from curate.models.classifier import Classifier, Preprocessing


class Counted(torch.nn.Module):
    def __init__(self, name, seed):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.name, self.last = name, torch.nn.Linear(48, 1000)
        self.last.weight.data = torch.randn(1000, 48, generator=random)
        self.last.bias.data = torch.zeros(1000)

    def forward(self, pixels):
        with (Path(__file__).parent / "passes").open("a") as stream:
            stream.write(f"{self.name} {len(pixels)}\\n")
        return self.last(torch.nn.functional.adaptive_avg_pool2d(pixels, 4).flatten(1))


def made(name, seed):
    half = (0.5, 0.5, 0.5)
    seen = Preprocessing(ViewRecipe(40, 32, "bilinear"), half, half, "a test")
    return Classifier(name=name, architecture=name, module=Counted(name, seed),
                      output=load_label_space("imagenet-1k"), preprocessing=seen)


def first():
    return made("first", 0)


def second():
    return made("second", 1)
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path / "models.py"


@pytest.fixture
def val(models: Path, tmp_path: Path, package_photos: list[tuple[Path, int]]) -> Path:
    """Photos under the classes that the first model takes them for, so that an attack has work."""
    root = tmp_path / "val"
    (root / WNIDS[0]).mkdir(parents=True)
    for path, _ in package_photos[:6]:
        shutil.copy(path, root / WNIDS[0])
    parts = Settings([("val", root)], steps=1).parts()
    run = Run(parts, Models((), [models], "cpu"), Store(tmp_path / "beginning"), 0, Stop())
    run.take(["first"])
    assert run.measure(["first"], [0])
    for item, wnid in zip(parts[0].layout, run.found["first", 0].predicted, strict=True):
        (root / str(wnid)).mkdir(exist_ok=True)
        item.path.rename(root / str(wnid) / item.path.name)
    (root / WNIDS[0]).rmdir()
    (tmp_path / "passes").unlink()
    return root


def measure(models: Path, val: Path, *settings: str, **options: Any) -> dict[str, Any]:
    options = {"store": models.parent / "store", "device": "cpu", "attack_steps": 3, **options}
    named = [(one, val) for one in settings]
    return run_testbed([], named, model_files=[models], **options)


def passes(models: Path) -> dict[str, int]:
    """Pictures that passed each model since the last look, but for one by which it is checked."""
    found: dict[str, int] = {}
    path = models.parent / "passes"
    for line in path.read_text().splitlines() if path.exists() else []:
        name, count = line.split()
        found[name] = found.get(name, 0) + int(count)
    path.unlink(missing_ok=True)
    return {name: count - 1 for name, count in found.items()}


def test_a_picture_passes_each_model_once_and_never_again(
    models: Path, val: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in the models themselves."""
    nothing = {"first": 0, "second": 0}
    measure(models, val, "val", "imagenet-c.fog.2")
    assert passes(models) == {"first": 12, "second": 12}
    again = measure(models, val, "val", "imagenet-c.fog.2")
    assert passes(models) == nothing
    assert (again["computed"], again["kept"], again["forward_passes"]) == (0, 4, 0)
    more = measure(models, val, "val", "imagenet-c.fog.2", "imagenet-c.snow.1")
    assert passes(models) == {"first": 6, "second": 6}
    assert (more["computed"], more["kept"]) == (2, 4)
    # An attack looks before its first step, before each one and at its end; what is wrong as it is
    # is only looked at.
    measure(models, val, "pgd.linf.eps0.5")
    found = passes(models)
    assert 6 * 3 < found["first"] <= 6 * (1 + 3 + 1)
    assert found["second"] == 6 * 2
    measure(models, val, "pgd.linf.eps0.5")
    assert passes(models) == nothing
    measure(models, val, "pgd.linf.eps0.5", attack_steps=4)
    assert passes(models)["first"] > 0
    # Where nothing is found again, all of this is seen.
    monkeypatch.setattr(Store, "get", lambda *_: None)
    measure(models, val, "val", "imagenet-c.fog.2")
    assert passes(models) == {"first": 12, "second": 12}


def test_other_labels_need_another_attack_and_nothing_else(
    models: Path, val: Path, tmp_path: Path
) -> None:
    """What is right is the attack's aim; whoever only looks at photos is not told."""
    (tmp_path / "flat").mkdir()
    for path in val.glob("*/*"):
        shutil.copy(path, tmp_path / "flat")
    names, counts = sorted(path.name for path in (tmp_path / "flat").iterdir()), []
    labels = tmp_path / "labels.txt"
    for wnid in (WNIDS[0], WNIDS[1]):
        labels.write_text("".join(f"{name} {wnid}\n" for name in names))
        found = measure(models, tmp_path / "flat", "val", "pgd.l2.eps0.1", labels=labels)
        counts.append((found["computed"], found["kept"]))
    assert counts == [(4, 0), (2, 2)]


def test_settings_that_share_images_pass_them_once(models: Path, val: Path, tmp_path: Path) -> None:
    of_o = load_label_space("imagenet-o").wnids
    photos = sorted(val.glob("*/*"))
    for number, path in enumerate(photos):
        (tmp_path / "some" / of_o[number]).mkdir(parents=True)
        shutil.copy(path, tmp_path / "some" / of_o[number])
    (tmp_path / "outside").mkdir()
    shutil.copy(photos[0], tmp_path / "outside")
    named = [("val", "some"), ("imagenet-o", "outside"), ("val-on-imagenet-o-classes", "some")]
    summary = run_testbed(
        [],
        [(name, tmp_path / folder) for name, folder in named],
        model_files=[models],
        store=tmp_path / "store",
        device="cpu",
    )
    # Those of val among all classes and among 200, and the one of something else.
    assert passes(models) == {"first": 6 + 6 + 1, "second": 6 + 6 + 1}
    assert (summary["computed"], summary["kept"]) == (6, 2)


def test_answers_are_let_go_of_once_they_are_counted(
    models: Path, val: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = [f"\n\ndef more{n}():\n    return made('more{n}', {n})\n" for n in range(5)]
    models.write_text(MODELS + "".join(more))
    held: list[int] = []
    forget = Run.forget

    def seen(self: Run, name: str) -> None:
        held.append(len(self.found))
        forget(self, name)
        held.append(len(self.found))

    monkeypatch.setattr(Run, "forget", seen)
    summary = measure(models, val, "val", "imagenet-c.fog.2")
    assert summary["computed"] == 2 * 7
    assert max(held) == 2 * TOGETHER
    assert held[-1] == 0


def test_two_runs_on_one_store_at_once_give_what_one_gives(
    models: Path, val: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both compute everything: neither keeps anything before the other has begun to."""
    settings = ["val", *(f"imagenet-c.fog.{level}" for level in (1, 2, 3))]
    put, both = Store.put, threading.Barrier(2, timeout=PATIENCE)

    def together(self: Store, about: Any, said: Any) -> None:
        both.wait()
        put(self, about, said)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", together)
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(measure, models, val, *settings) for _ in range(2)]
            one, other = (run.result() for run in runs)
    assert one["computed"] == other["computed"] == 8
    assert one["results"] == other["results"]
    after = measure(models, val, *settings)
    assert (after["computed"], after["kept"]) == (0, 8)
    assert after["results"] == one["results"]
    assert not list((models.parent / "store").glob(f"{TEMPORARY}*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "fault"),
    [
        ("replace:3", ""),
        pytest.param("replace:2", "", marks=pytest.mark.thorough),
        pytest.param("fsync:5", "", marks=pytest.mark.thorough),
        pytest.param("half:2", "direct", marks=pytest.mark.thorough),
    ],
)
def test_a_killed_run_goes_on_and_computes_what_lacks_alone(
    models: Path, val: Path, tmp_path: Path, at: str, fault: str
) -> None:
    """Nor is what is cut off taken for whole, even where files are written in place."""
    settings = ["val", "imagenet-c.fog.1", "imagenet-c.fog.2"]
    command = ["robustness", "run", "--model-file", str(models), "--device", "cpu"]
    command += [word for one in settings for word in ("--settings", f"{one}={val}")]
    command += ["--store", str(tmp_path / "store")]
    planted = ["--fault", fault, *command] if fault else command
    assert dying(*planted, at=at) is None, "it was to be killed"
    passes(models)
    rest = measure(models, val, *settings)
    assert 1 <= rest["kept"] < 6
    assert rest["kept"] + rest["computed"] == 6
    assert sum(passes(models).values()) == 6 * rest["computed"]
    fresh = measure(models, val, *settings, store=tmp_path / "other")
    assert rest["results"] == fresh["results"]


def test_what_another_run_is_writing_is_left_alone_and_what_nobody_is_goes(tmp_path: Path) -> None:
    import os

    fresh, old = tmp_path / f"{TEMPORARY}fresh", tmp_path / f"{TEMPORARY}old"
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    # Its writer has finished between the listing and the look at it.
    (tmp_path / f"{TEMPORARY}renamed").symlink_to(tmp_path / "absent")
    Store(tmp_path)
    assert (fresh.exists(), old.exists()) == (True, False)


def test_a_photo_that_was_away_for_a_moment_is_looked_at_another_time(
    models: Path, val: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read and hashed, and gone when its pixels were wanted."""
    photo = min(val.glob("*/*"))
    data, read = photo.read_bytes(), Pictures.read

    def gone(self: Pictures, *args: Any, **options: Any) -> bool:
        found = read(self, *args, **options)
        photo.unlink()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Pictures, "read", gone)
        assert measure(models, val, "val")["failed"] == 1
    photo.write_bytes(data)
    again = measure(models, val, "val")
    assert (again["failed"], again["computed"], again["kept"]) == (0, 2, 0)
    assert measure(models, val, "val")["kept"] == 2


def work(models: Path, val: Path, **changes: Any) -> Work:
    parts = Settings([("val", val), ("imagenet-c.fog.2", val)], steps=3).parts()
    store = models.parent / "store"
    Store(store)
    there = must_be_there(parts, [models], store)
    told = {"parts": parts, "names": (), "files": [models], "store": store, "there": there}
    return Work(**{**told, "seed": 0, "device": "cpu", **changes})


def test_an_actor_gives_what_a_run_here_gives_and_stops_when_told(
    models: Path, val: Path, tmp_path: Path
) -> None:
    told = work(models, val)
    actor = Actor()
    assert actor.begin(own_code(), pickle.dumps(told), 1) is None
    found = pickle.loads(pickle.dumps(actor.score(1, Unit(0, ("first", "second"), 1))))
    assert isinstance(found, Passed)
    assert (found.computed, found.kept) == (2, 0)
    here = Run(told.parts, Models((), [models], "cpu"), Store(tmp_path / "other"), 0, Stop())
    here.take(["first", "second"])
    assert here.measure(["first", "second"], [1])
    for name in ("first", "second"):
        assert found.said[name].predicted == here.found[name, 1].predicted
        assert (found.said[name].confidence == here.found[name, 1].confidence).all()
        assert found.records[name] == here.records[name]
    assert found.content == here.contents[1]
    kept = actor.score(1, Unit(1, ("first",), 1))
    assert isinstance(kept, Passed)
    assert (kept.computed, kept.kept, kept.clock[2]) == (0, 1, 0)
    actor.stop(1)
    assert actor.score(1, Unit(2, ("first",), 0)) is None


def test_an_actor_without_the_store_or_with_other_models_says_where(
    models: Path, val: Path
) -> None:
    told = work(models, val)
    gone = work(models, val, there=[(Path("/nowhere/store"), "")])
    for wrong in (gone, told):
        if wrong is told:
            models.write_text(MODELS + "\n")
        fault = Actor().begin(own_code(), pickle.dumps(wrong), 1)
        assert isinstance(fault, Fault)
        assert fault.kind == "UsageError"
        assert "share it with every machine of the cluster" in fault.text


def test_ray_must_be_there_and_asked_for(
    models: Path, val: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="add --engine ray"):
        measure(models, val, "val", ray_address="auto")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name)
    )
    with pytest.raises(MissingExtraError, match=r"natadv-curate\[ray\]"):
        measure(models, val, "val", engine="ray")
    assert passes(models) == {}


@pytest.mark.slow
def test_a_run_on_ray_gives_the_same_cells_and_the_same_store(models: Path, val: Path) -> None:
    """Two workers on the cores of this machine."""
    settings = ["val", "imagenet-c.fog.2", "pgd.l2.eps0.5"]
    on_ray = measure(models, val, *settings, engine="ray")
    assert (on_ray["computed"], on_ray["kept"], on_ray["engine"]) == (6, 0, "ray")
    here = measure(models, val, *settings, store=models.parent / "other")
    assert on_ray["results"] == here["results"]
    assert on_ray["settings"] == here["settings"]
    assert on_ray["models"] == here["models"]
    assert measure(models, val, *settings)["kept"] == 6


def test_pictures_that_do_not_fit_are_attacked_in_smaller_parts(
    models: Path, val: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = measure(models, val, "pgd.linf.eps2")
    full = (
        "        if len(pixels) > 2 and pixels.requires_grad:\n"
        "            raise torch.OutOfMemoryError('CUDA out of memory')\n"
    )
    models.write_text(MODELS.replace("        return self.last", f"{full}        return self.last"))
    parts = measure(models, val, "pgd.linf.eps2")
    assert parts["computed"] == 2
    assert parts["results"] == whole["results"]
    assert (
        "an attack on first: the device's memory does not hold 4 views" in capsys.readouterr().err
    )


def test_a_border_is_cut_off_before_a_photo_is_seen_and_a_crop_is_seen_whole(
    models: Path, val: Path, tmp_path: Path
) -> None:
    from PIL import Image, ImageOps

    roots = {name: tmp_path / name for name in ("bare", "framed")}
    for path in val.glob("*/*"):
        photo = Image.open(path).convert("RGB")
        for name, root in roots.items():
            (root / path.parent.name).mkdir(parents=True, exist_ok=True)
            drawn = photo if name == "bare" else ImageOps.expand(photo, 2, (255, 0, 0))
            drawn.save(root / path.parent.name / f"{path.stem}.png")
    bare, framed = (Settings([("val", root)], steps=1).parts()[0] for root in roots.values())
    parts = [bare, framed, replace(framed, border=2), replace(bare, is_cut=True)]
    run = Run(parts, Models((), [models], "cpu"), Store(tmp_path / "other"), 0, Stop())
    run.take(["first"])
    assert run.measure(["first"], range(4))
    plain, red, cut, whole = (run.found["first", place].confidence.tolist() for place in range(4))
    assert cut == plain
    assert red != plain
    assert whole != plain


def test_images_that_nobody_can_read_give_no_number(models: Path, tmp_path: Path) -> None:
    root = tmp_path / "broken"
    (root / WNIDS[3]).mkdir(parents=True)
    (root / WNIDS[3] / "bad.jpg").write_bytes(b"no photo")
    with pytest.raises(UsageError, match="val: none of 1 images of broken gave a prediction; .*"):
        measure(models, root, "val")
