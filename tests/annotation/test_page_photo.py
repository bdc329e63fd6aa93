"""What of a photo a real browser shows on the labelling pages: all of it, whatever its shape."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from annotation.client_errors import GoneError
from annotation.interface import blind_interface
from annotation.server import served
from annotation.task_data import Shown, task
from curate.labels.space import LabelSpace, load_label_space
from tests.annotation.browsing import Person, somebody
from tests.annotation.serving import Served

# The first test to run may have to install it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SPACE = LabelSpace("few", load_label_space("imagenet-1k").classes[:9])
SHAPES = {"wide": (448, 224), "tall": (200, 600), "small": (40, 30)}

# The whole picture is as large as the window through which it is seen, to the pixel to which Label
# Studio rounds, and has its own shape.
WHOLE = """shape => {
    const found = ['.lsf-image img', '.lsf-image', '.lsf-toolbar']
        .map(name => document.querySelector('.curate-photo ' + name));
    if (found.includes(null)) return false;
    const [picture, seen] = found.map(each => each.getBoundingClientRect());
    return ['left', 'top', 'right', 'bottom']
            .every(side => Math.abs(picture[side] - seen[side]) < 1.5)
        && Math.abs(picture.width / picture.height / shape - 1) < 0.01
        && picture.height > 200;
}"""


def test_no_part_of_a_photo_is_cut_off(
    running: Served, browser_path: str, package_photos: list[tuple[Path, int]]
) -> None:
    from PIL import Image

    folder = running.root / "images" / "pb"
    folder.mkdir(parents=True, exist_ok=True)
    with Image.open(package_photos[5][0]) as photo:
        for name, size in SHAPES.items():
            photo.resize(size).save(folder / f"{name}.jpg")
    client = running.client()
    number = int(client.create_project("the photo", blind_interface(SPACE))["id"])
    client.create_local_storage(number, str(served(running.root) / "images"))
    shown = [Shown(f"{name:c>32}", f"/data/local-files/?d=images/pb/{name}.jpg") for name in SHAPES]
    client.import_tasks(number, [task(one, "blind") for one in shown])
    account = next(a for a in running.kept["accounts"] if a["email"] == "ann@example.org")
    try:
        with somebody(browser_path, client.url, account, Person) as person:
            for (width, height), one in zip(SHAPES.values(), client.task_ids(number), strict=True):
                person.page.goto(f"{client.url}/projects/{number}/data?task={one}")
                person.ready()
                person.page.wait_for_function(WHOLE, arg=width / height)
    finally:
        with suppress(GoneError):
            client.delete_project(number)
