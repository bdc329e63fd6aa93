"""What the downloader takes and gives: images that are wanted, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Wanted:
    """An image to be downloaded.

    Attributes:
        id: the caller's name for it.
        url: its address as somebody wrote it.
    """

    id: int
    url: str


@dataclass(frozen=True)
class Fetched(Generic[T_co]):
    """A downloaded image.

    Attributes:
        wanted: what was asked for.
        path: the file, whole and synced; the caller's to rename or remove.
        sha256: of its content, 64 hexadecimal digits.
        bytes: its size.
        url: the address that answered, after redirects.
        content_type, etag, last_modified: what the answer said of itself.
        attempts: how often it was tried, this time included.
        outcome: what looking at the image gave.
    """

    wanted: Wanted
    path: Path
    sha256: str
    bytes: int
    url: str
    content_type: str | None
    etag: str | None
    last_modified: str | None
    attempts: int
    outcome: T_co


@dataclass(frozen=True)
class Failed:
    """An image that was not downloaded.

    Attributes:
        wanted: what was asked for.
        state: one of `curate.sources.states`; "waiting" where its host is left for a later start.
        detail: what was seen.
        attempts: how often it was tried.
        retry_at: when the host may be asked again, in UTC without zone; None where nothing says so.
    """

    wanted: Wanted
    state: str
    detail: str
    attempts: int
    retry_at: datetime | None = None
