"""Why an address was not fetched."""

from __future__ import annotations

from curate.errors import CurateError
from curate.sources.states import FAILED, REJECTED

#: Answers that another try may better (RFC 9110, and RFC 6585 for 429).
RETRYABLE_STATUSES = frozenset((408, 425, 429, 500, 502, 503, 504))

_RETRYABLE = frozenset(
    ("timeout", "connection", "truncated", "waiting", *(f"http_{n}" for n in RETRYABLE_STATUSES))
)


class FetchFailed(CurateError):
    """One address was not fetched. The hit ends in `state`, or is tried again.

    Args:
        state: one of `curate.sources.states`; "waiting" where the caller stopped the download.
        detail: what was seen, for the list of failures. Holds no credentials.
        retry_after: seconds that the server asked to wait for; None where it did not.
        retryable: whether another try may do better; None to judge by the state.
    """

    def __init__(
        self,
        state: str,
        detail: str = "",
        *,
        retry_after: float | None = None,
        retryable: bool | None = None,
    ) -> None:
        self.state = state
        self.detail = detail or FAILED.get(state) or REJECTED.get(state) or state
        self.retry_after = retry_after
        self.retryable = state in _RETRYABLE if retryable is None else retryable
        super().__init__(f"{state}: {self.detail}")

    @property
    def status(self) -> int | None:
        """The number of the answer, where the failure is one: 404 for "http_404"."""
        number = self.state.removeprefix("http_")
        return int(number) if number.isdigit() else None

    @property
    def out_of_reach(self) -> bool | None:
        """Whether it tells that a host is out of order, as `Manners.end` takes it."""
        if self.state in ("connection", "timeout"):
            return True
        if self.state == "dns":
            # That a name leads nowhere is an answer; that nobody answers for it is none.
            return True if self.retryable else None
        if self.state in ("tls", "waiting", "bad_url", "forbidden_address"):
            return None
        return (self.status or 0) >= 500
