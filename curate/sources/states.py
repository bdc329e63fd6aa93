"""The states of a hit: what became of every image that a source named.

Each hit of a remote source ends in one of these, or in "http_" and the three digits of an answer
that is no success, such as "http_404". The names are part of the contract: scripts filter on them.
"""

from __future__ import annotations

import re

from curate.errors import REASONS

#: Not ended yet.
OPEN: dict[str, str] = {
    "waiting": "not downloaded yet",
    "fetched": "downloaded, not yet compared with the others",
}

#: Ended well.
TAKEN: dict[str, str] = {
    "downloaded": "became a candidate",
    "duplicate": "the same picture is there already",
}

#: The server or the way to it failed; `--retry-failed` tries these again.
FAILED: dict[str, str] = {
    "timeout": "no answer in time, or too slow a one",
    "dns": "the host's name leads nowhere",
    "connection": "the connection was refused or broke",
    "tls": "the host's certificate is not trusted",
    "truncated": "the body ended early",
    "too_many_redirects": "redirected more often than network.redirects",
    "bad_answer": "the server does not speak HTTP",
}

#: It will not be taken, whatever the server does; `--retry-failed REASON` tries it again all the
#: same, after a setting has changed.
REJECTED: dict[str, str] = {
    "bad_url": "no http or https address, or one with credentials or control characters",
    "forbidden_address": "a private, loopback, link-local, multicast or metadata address, "
    "or a port other than 80 and 443",
    "robots": "the site's robots.txt asks not to fetch it",
    "robots_tag": "the answer's X-Robots-Tag asks not to use it",
    "no_label": "no known class",
    "too_large": "larger than images.max_bytes",
}

_RENAMED = {
    "too-many-bytes": "too_large",
    "unsupported-format": "not_an_image",
    "duplicate-exact": "duplicate",
    "duplicate-pixels": "duplicate",
    "duplicate-near": "duplicate",
    "empty-file": "truncated",
    "malformed-record": "malformed",
}
# Some servers make up numbers of their own, such as 999.
_HTTP = re.compile(r"http_[1-9]\d\d")


def state_of(reason: str) -> str:
    """The state of a hit whose content was refused with a reason of `curate.errors.REASONS`."""
    return _RENAMED.get(reason, reason.replace("-", "_"))


#: What only befalls files of this machine, stored images and scores.
_OF_NO_HIT = frozenset(
    ("symlink", "not-a-file", "unreadable", "missing", "outside", "altered", "nan-logits")
)

#: Every state with its explanation, but for those named after an answer's number.
STATES: dict[str, str] = {
    **{state_of(reason): text for reason, text in REASONS.items() if reason not in _OF_NO_HIT},
    **OPEN,
    **TAKEN,
    **FAILED,
    **REJECTED,
}


def is_failure(state: str) -> bool:
    """Whether the server or the way to it failed, so that another try may do better."""
    return state in FAILED or _HTTP.fullmatch(state) is not None


def is_state(text: str) -> bool:
    """Whether a hit can be in this state."""
    return text in STATES or _HTTP.fullmatch(text) is not None
