"""What goes wrong between this machine and an object store, in one line each.

What a user has to mend (a bucket, a key, a region) is a `WorkspaceError`; what may be gone at the
next start is a `StorageError`. No line repeats an address of a request or what was sent with it.
"""

from __future__ import annotations

from curate.errors import CurateError, StorageError, WorkspaceError

_KEYS = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "ExpiredToken",
    "ExpiredTokenException",
    "TokenRefreshRequired",
    "InvalidClientTokenId",
    "NotSignedUp",
}
_DENIED = {"AccessDenied", "AllAccessDisabled", "AccountProblem", "403", "Forbidden"}
_REGION = {
    "PermanentRedirect",
    "TemporaryRedirect",
    "Redirect",
    "301",
    "307",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
}
_BUSY = {"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "500", "503"}

#: Errors of the S3 library that tell of keys or settings that are not there or no use.
_NO_KEYS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}
_SETTINGS = {"ProfileNotFound", "ConfigParseError", "ParamValidationError", "NoRegionError"}


def fault(error: Exception, address: str) -> CurateError | None:
    """The line for an error of fsspec or of what it uses.

    Args:
        error: what was raised.
        address: of the store.

    Returns:
        None where it says that one object is not there.
    """
    code = _code(error)
    if code is not None and (told := _refusal(code, address)) is not None:
        return told
    if isinstance(error, FileNotFoundError):
        return None
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _NO_KEYS or "SSO" in type(error).__name__:
        return WorkspaceError(
            f"store: no key for {address}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "AWS_PROFILE"
        )
    if names & _SETTINGS or isinstance(error, ValueError | TypeError):
        return WorkspaceError(f"store: {address} cannot be used: {_first_line(error)}")
    if isinstance(error, ImportError):
        return WorkspaceError(f"store: {address} needs a package that is absent: {error}")
    if isinstance(error, PermissionError):
        return _denied(address)
    if isinstance(error, NotImplementedError):
        return WorkspaceError(f"store: {address} cannot be written to")
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return StorageError(f"the store {address} does not answer in time; run again later")
    if code is not None:
        return StorageError(f"the store {address} refuses: {code}; {_first_line(error)}")
    return away(error, address)


def away(error: Exception, address: str) -> StorageError:
    """What is told where nothing better is known."""
    return StorageError(
        f"the store {address} cannot be reached ({type(error).__name__}); check the network and "
        "the endpoint, and run again"
    )


def _code(error: BaseException) -> str | None:
    """The code of S3's own answer, if the error comes from one."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", "")) or None
    return None


def _refusal(code: str, address: str) -> CurateError | None:
    bucket = address.split("://")[1].split("/")[0]
    if code == "NoSuchBucket":
        return WorkspaceError(
            f"store: there is no bucket {bucket}: make it, or correct the setting store"
        )
    if code == "InvalidBucketName":
        return WorkspaceError(f"store: no bucket can be called {bucket}")
    if code in _KEYS:
        return WorkspaceError(
            f"store: the key for {address} is not accepted ({code}): renew it, or correct it"
        )
    if code in _DENIED:
        return _denied(address)
    if code in _REGION:
        return WorkspaceError(
            f"store: the bucket {bucket} is in another region ({code}): set AWS_DEFAULT_REGION"
        )
    if code == "RequestTimeTooSkewed":
        return WorkspaceError(f"store: {address} refuses this machine's clock: set it right")
    if code in _BUSY:
        return StorageError(f"the store {address} is busy ({code}); run again later")
    return None


def _denied(address: str) -> WorkspaceError:
    return WorkspaceError(
        f"store: access to {address} is denied: the key must be allowed to list it, and to read, "
        "write and delete in it"
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:200] or type(error).__name__
