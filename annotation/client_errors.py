"""What may go wrong between this program and Label Studio, each as one line without a secret.

CurateError
├── ReviewServerError          exit 1   Label Studio answers with an error
│   ├── ServerAway                      nothing was done: it cannot be reached, or is busy
│   ├── Unanswered                      what was sent may have been stored: look it up
│   ├── GoneError                       no such project, task or annotation
│   └── AlreadyStored                   an annotation of this number is there
└── UsageError
    └── TokenRefused           exit 2   the token is wrong, has expired or may not do this
"""

from __future__ import annotations

from curate.errors import CurateError, UsageError


class ReviewServerError(CurateError):
    """Label Studio answers with an error, or in a form that is not understood.

    Args:
        text: one line.
        status: of the answer; None where there was none.
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(text)


class ServerAway(ReviewServerError):
    """Label Studio cannot be reached or does not answer; nothing has been changed there.

    Args:
        text: one line.
        status: of the answer; None where there was none.
        pause: seconds after which it wants to be asked again, as far as it says.
    """

    def __init__(self, text: str, status: int | None = None, pause: float | None = None) -> None:
        self.pause = pause
        super().__init__(text, status)


class Unanswered(ReviewServerError):
    """What was sent may have been stored: look it up before you send it again."""


class GoneError(ReviewServerError):
    """No such project, task or annotation; it has been deleted, or never was."""


class AlreadyStored(ReviewServerError):
    """An annotation with this unique id is there already."""


class TokenRefused(UsageError):
    """The token is wrong, has expired, or may not do this."""
