"""Finding the image that a row of somebody's file means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from curate.errors import UsageError, nearest


class ImageIds:
    """The images of a dataset, by what people call them.

    An id counts as the path within the dataset, also behind further folders
    ("/data/imagenet-a/n01498041/x.jpg"), or as the file name alone where one image has it.

    Args:
        items: the images in order, as (path within the dataset, true class).
        file: the file that names them, for errors.
    """

    def __init__(self, items: Sequence[tuple[str, str]], file: str) -> None:
        self._file = file
        self._paths = [path for path, _ in items]
        self._by_path = {path: place for place, path in enumerate(self._paths)}
        self._by_name: dict[str, int | None] = {}
        for place, path in enumerate(self._paths):
            name = path.rpartition("/")[2]
            self._by_name[name] = None if name in self._by_name else place

    def places(self, named: Iterable[tuple[str, str]]) -> list[int]:
        """For each image of the dataset, the number of the row that is about it.

        Args:
            named: for each row, how to call it ("line 2") and its id.

        Raises:
            UsageError: an image has two rows or none, or a row is about no image.
        """
        rows: list[int | None] = [None] * len(self._paths)
        wheres: list[str] = []
        unknown: list[tuple[str, str]] = []
        for number, (where, text) in enumerate(named):
            wheres.append(where)
            place = self._find(where, text)
            if place is None:
                unknown.append((where, text))
            elif (other := rows[place]) is not None:
                raise UsageError(
                    f"{self._file}, {where}: image {text!r} was named in {wheres[other]} already"
                )
            else:
                rows[place] = number
        if unknown:
            where, text = unknown[0]
            near = nearest(text, self._paths, 1) if len(self._paths) <= 10_000 else []
            hint = f" (is it {near[0]!r}?)" if near else ""
            raise UsageError(
                f"{self._file}, {where}: image {text!r} is not in the dataset{hint}; "
                f"so are {len(unknown)} of {len(wheres)} rows"
            )
        found = [row for row in rows if row is not None]
        if len(found) < len(rows):
            first = self._paths[rows.index(None)]
            raise UsageError(
                f"{self._file} has no row for image {first!r} of the dataset; "
                f"{len(rows) - len(found)} of {len(rows)} images are missing"
            )
        return found

    def _find(self, where: str, text: str) -> int | None:
        for spelling in (text, text.replace("\\", "/")):
            parts = [part for part in spelling.split("/") if part != "."]
            for start in range(len(parts) - 1):
                if (place := self._by_path.get("/".join(parts[start:]))) is not None:
                    return place
            if len(parts) == 1 and parts[0] in self._by_name:
                place = self._by_name[parts[0]]
                if place is None:
                    raise UsageError(
                        f"{self._file}, {where}: several images are named {text!r}; "
                        "write their paths within the dataset"
                    )
                return place
        return None
