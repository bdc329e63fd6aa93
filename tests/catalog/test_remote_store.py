"""Images in an object store: the same promises as in a folder, over a network that may fail."""

from __future__ import annotations

import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.catalog import remote_store
from curate.catalog.remote_store import RemoteStore
from curate.catalog.store import FolderStore, ImageStore, key_of, open_store
from curate.errors import (
    CurateError,
    ImageRefused,
    MissingExtraError,
    SettingsError,
    StorageError,
    WorkspaceError,
)
from curate.files import sha256_bytes
from tests.object_store import KEY, SECRET, Answers, ObjectStore, environ, error
from tests.waiting import PATIENCE, wait_until

PHOTO = (sha256_bytes(b"photo"), "jpg")


@pytest.fixture
def s3(bucket: str) -> RemoteStore:
    return RemoteStore(f"s3://{bucket}/some/images")


@pytest.fixture(params=("s3", "memory"))
def store(request: pytest.FixtureRequest) -> ImageStore:
    if request.param == "s3":
        return request.getfixturevalue("s3")
    return RemoteStore(f"memory://{uuid.uuid4().hex}/images")


def stored(store: ImageStore, *contents: bytes) -> None:
    for data in contents:
        store.put(data, sha256_bytes(data), "jpg")
    store.sync()


def test_bytes_come_back_unchanged(store: ImageStore, tmp_path: Path) -> None:
    contents = [bytes([n]) * n for n in range(12)]
    stored(store, *contents)
    for data in contents:
        assert store.read(sha256_bytes(data), "jpg") == data
        assert store.holds(sha256_bytes(data), "jpg")
    assert list(store) == sorted(key_of(sha256_bytes(data), "jpg") for data in contents)
    store.copy_to(sha256_bytes(contents[3]), "jpg", tmp_path / "copy.jpg")
    assert (tmp_path / "copy.jpg").read_bytes() == contents[3]


def test_an_empty_store_holds_nothing(store: ImageStore) -> None:
    assert list(store) == []
    assert not store.holds(*PHOTO)
    assert not store.check(*PHOTO)
    with pytest.raises(ImageRefused, match="missing"):
        store.read(*PHOTO)
    store.remove(key_of(*PHOTO))
    assert store.leftovers(remove=True) == {}


def test_a_download_goes_up_and_then_away(store: ImageStore, tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "download").write_bytes(b"photo")
        store.adopt(tmp_path / "download", *PHOTO)
        store.sync()
        assert store.read(*PHOTO) == b"photo"
        assert not (tmp_path / "download").exists()
    # A kill came between the upload and the transaction.
    store.adopt(tmp_path / "download", *PHOTO)
    store.sync()


def test_a_download_with_two_labels_goes_up_once(s3: RemoteStore, tmp_path: Path) -> None:
    for number in range(8):
        data = f"photo {number}".encode()
        (tmp_path / "download").write_bytes(data)
        for _ in range(4):
            s3.adopt(tmp_path / "download", sha256_bytes(data), "jpg")
        s3.sync()
        assert s3.read(sha256_bytes(data), "jpg") == data


def test_a_download_that_is_gone_or_damaged_is_no_image(store: ImageStore, tmp_path: Path) -> None:
    store.adopt(tmp_path / "gone", *PHOTO)
    with pytest.raises(StorageError, match="gone"):
        store.sync()
    (tmp_path / "damaged").write_bytes(b"phot")
    store.adopt(tmp_path / "damaged", *PHOTO)
    with pytest.raises(StorageError, match="damaged"):
        store.sync()
    assert (tmp_path / "damaged").exists()
    assert list(store) == []
    # What went wrong is told once.
    store.sync()


def test_a_truncated_or_altered_object_is_told_and_replaced(
    s3: RemoteStore, object_store: ObjectStore
) -> None:
    # A program that tells no check of what it sends, and one that tells a SHA-256.
    for harm, sent in (
        (b"phot", {}),
        (b"phota", {}),
        (b"", {"ChecksumAlgorithm": "SHA256"}),
        (b"phota", {"ChecksumAlgorithm": "SHA256"}),
    ):
        stored(s3, b"photo")
        place = {"Bucket": s3.address.split("/")[2], "Key": f"some/images/{key_of(*PHOTO)}"}
        object_store.client.put_object(**place, Body=harm, **sent)
        assert not s3.holds(*PHOTO)
        assert not s3.check(*PHOTO)
        with pytest.raises(ImageRefused, match="altered"):
            s3.read(*PHOTO)
    stored(s3, b"photo")
    assert s3.read(*PHOTO) == b"photo"
    # One that says of itself what is not so: who reads it finds out.
    sum_of_photo = remote_store._base64(PHOTO[0])
    object_store.client.put_object(
        **place, Body=b"phota", ChecksumAlgorithm="SHA256", ChecksumSHA256=sum_of_photo
    )
    assert not s3.check(*PHOTO)
    with pytest.raises(ImageRefused, match="altered"):
        s3.read(*PHOTO)


def test_what_another_program_put_there_serves(s3: RemoteStore, object_store: ObjectStore) -> None:
    key = f"some/images/{key_of(*PHOTO)}"
    object_store.client.put_object(Bucket=s3.address.split("/")[2], Key=key, Body=b"photo")
    assert s3.holds(*PHOTO)
    with object_store.asked() as asked:
        stored(s3, b"photo")
    assert [line.split()[0] for line in asked] == ["HEAD", "GET"]


def test_an_image_costs_two_questions_and_asking_for_it_one(
    s3: RemoteStore, object_store: ObjectStore
) -> None:
    with object_store.asked() as asked:
        stored(s3, *[bytes([n]) for n in range(5)])
    assert sorted(line.split()[0] for line in asked) == ["HEAD"] * 5 + ["PUT"] * 5
    with object_store.asked() as asked:
        assert s3.holds(sha256_bytes(b"\0"), "jpg")
    assert [line.split()[0] for line in asked] == ["HEAD"]
    with object_store.asked() as asked:
        assert s3.read(sha256_bytes(b"\0"), "jpg") == b"\0"
    assert [line.split()[0] for line in asked] == ["GET"]
    with object_store.asked() as asked:
        stored(s3, b"\0")
    assert [line.split()[0] for line in asked] == ["HEAD"]


def test_listing_is_sorted_and_leaves_alone_what_is_not_named_as_images(
    s3: RemoteStore, object_store: ObjectStore
) -> None:
    bucket = s3.address.split("/")[2]
    # More than a page of one folder.
    many = [f"{'ab' + format(n, '062x')}" for n in range(0, 2400, 2)]
    from moto.s3.models import s3_backends

    (backend,) = (b["global"] for b in s3_backends.values() if bucket in b["global"].buckets)
    for sha256 in many:
        backend.put_object(bucket, f"some/images/{key_of(sha256, 'png')}", b"")
    for other in (
        "some/images-2/ab/x.jpg",
        "some/images/README",
        "some/images/ab/notes.txt",
        "some/images/notes/a.jpg",
        f"some/images/ab/deep/{'0' * 64}.jpg",
    ):
        object_store.client.put_object(Bucket=bucket, Key=other, Body=b"")
    stored(s3, b"photo")
    expected = sorted([*(key_of(sha256, "png") for sha256 in many), key_of(*PHOTO)])
    assert list(s3) == expected
    s3.remove(expected[0])
    assert list(s3) == expected[1:]


_CONTENTS = [b"", b"a", b"photo", b"photo" * 1000]
_STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "adopt", "remove", "sync"]), st.sampled_from(_CONTENTS)),
    max_size=12,
)


@pytest.mark.slow
@given(steps=_STEPS)
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_all_stores_do_the_same(
    tmp_path_factory: pytest.TempPathFactory, bucket: str, steps: list[tuple[str, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("stores")
    stores: list[ImageStore] = [
        FolderStore(folder / "images"),
        RemoteStore(f"s3://{bucket}/{uuid.uuid4().hex}"),
        RemoteStore(f"memory://{uuid.uuid4().hex}/images"),
    ]
    expected: set[str] = set()
    for step, data in steps:
        image = (sha256_bytes(data), "jpg")
        for store in stores:
            if step == "put":
                store.put(data, *image)
            elif step == "adopt":
                (folder / "download").write_bytes(data)
                store.adopt(folder / "download", *image)
            elif step == "remove":
                store.sync()
                store.remove(key_of(*image))
            store.sync()
        expected = expected - {key_of(*image)} if step == "remove" else expected
        expected = expected | {key_of(*image)} if step in ("put", "adopt") else expected
    for store in stores:
        assert list(store) == sorted(expected)
        for data in _CONTENTS:
            image = (sha256_bytes(data), "jpg")
            assert store.holds(*image) == store.check(*image) == (key_of(*image) in expected)


def test_threads_read_side_by_side(s3: RemoteStore) -> None:
    contents = [f"photo {n}".encode() * 500 for n in range(20)]
    stored(s3, *contents)
    fresh = RemoteStore(s3.address)
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda data: fresh.read(sha256_bytes(data), "jpg"), contents * 4)
        assert list(found) == contents * 4


@pytest.mark.slow
def test_a_fork_and_another_process_read_what_their_parent_stored(s3: RemoteStore) -> None:
    stored(s3, b"photo")
    assert pickle.loads(pickle.dumps(s3)).read(*PHOTO) == b"photo"
    script = f"""
import os
from concurrent.futures import ThreadPoolExecutor
from curate.catalog.store import open_store
store = open_store({s3.address!r})
assert store.read(*{PHOTO!r}) == b"photo"
store.put(b"parent", {sha256_bytes(b"parent")!r}, "jpg")
child = os.fork()
if not child:
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda n: store.read(*{PHOTO!r}), range(20))) == {{b"photo"}}
    store.put(b"child", {sha256_bytes(b"child")!r}, "jpg")
    store.sync()
    os._exit(0)
store.sync()
assert os.waitpid(child, 0)[1] == 0
for data in (b"parent", b"child"):
    import hashlib
    assert store.read(hashlib.sha256(data).hexdigest(), "jpg") == data
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    # Nothing is said at the end of a connection, either.
    assert (done.returncode, done.stderr) == (0, "")


def test_a_store_serves_one_workspace(store: ImageStore, tmp_path: Path) -> None:
    outside = open_store((tmp_path / "elsewhere").as_uri())
    for one in (store, outside):
        one.claim("first")
        stored(one, b"photo")
        one.claim("first")
        with pytest.raises(WorkspaceError, match="another workspace"):
            one.claim("second")
        assert list(one) == [key_of(*PHOTO)]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_store, "_TRIES", 2)
    monkeypatch.setattr(remote_store, "_READS", 1)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, impatient: None) -> Iterator[Callable[..., Answers]]:
    """Starts a server that answers as it is told, as the one that this process uses."""
    running: list[Answers] = []

    def answer(*answers: tuple[int, bytes, int | None]) -> Answers:
        running.append(Answers(*answers).__enter__())
        for name, value in environ(running[-1].url).items():
            monkeypatch.setenv(name, value)
        return running[-1]

    yield answer
    for server in running:
        server.__exit__()


def told(store: ImageStore, what: str) -> CurateError:
    """The error of storing, asking for, reading, listing or claiming; one line without secrets."""
    with pytest.raises(CurateError) as caught:
        if what == "put":
            stored(store, b"photo")
        elif what == "list":
            list(store)
        elif what == "claim":
            store.claim("first")
        else:
            getattr(store, what)(*PHOTO)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 300
    assert KEY not in line
    assert SECRET not in line
    return caught.value


@pytest.mark.parametrize(
    ("code", "status", "kind", "words"),
    [
        ("NoSuchBucket", 404, WorkspaceError, "no bucket photos"),
        ("AccessDenied", 403, WorkspaceError, "denied"),
        ("InvalidAccessKeyId", 403, WorkspaceError, "key .* not accepted"),
        ("SignatureDoesNotMatch", 403, WorkspaceError, "key .* not accepted"),
        ("ExpiredToken", 400, WorkspaceError, "key .* not accepted"),
        ("PermanentRedirect", 301, WorkspaceError, "another region"),
        ("AuthorizationHeaderMalformed", 400, WorkspaceError, "another region"),
        ("RequestTimeTooSkewed", 403, WorkspaceError, "clock"),
        ("SlowDown", 503, StorageError, "busy"),
        ("InternalError", 500, StorageError, "busy"),
        ("InvalidRequest", 400, StorageError, "InvalidRequest it is"),
    ],
)
@pytest.mark.parametrize("what", ["claim", "read", "put", "list"])
def test_what_a_store_refuses_is_told_in_a_line(
    answering: Callable[..., Answers],
    code: str,
    status: int,
    kind: type[CurateError],
    words: str,
    what: str,
) -> None:
    answering(error(code, status))
    found = told(RemoteStore("s3://photos/images"), what)
    assert type(found) is kind
    with pytest.raises(kind, match=words):
        raise found


@pytest.mark.slow
def test_no_answer_is_waited_for_without_end(
    answering: Callable[..., Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_store, "_SILENCE", 1)
    silent = answering((0, b"", None))
    for what in ("read", "put"):
        assert "in time" in str(told(RemoteStore("s3://photos/images"), what))
    wait_until(lambda: len(silent.requests) >= 4)


def test_a_slow_answer_is_given_up_after_a_time(
    answering: Callable[..., Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_store, "_SILENCE", 60)
    monkeypatch.setattr(remote_store, "_MOST", 2)
    answering((0, b"", None))
    assert "in time" in str(told(RemoteStore("s3://photos/images"), "read"))


@pytest.mark.slow
def test_a_store_that_is_away_is_told(
    monkeypatch: pytest.MonkeyPatch, impatient: None, answering: Callable[..., Answers]
) -> None:
    for name, value in environ("http://127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    for what in ("holds", "read", "put", "list", "claim"):
        assert "cannot be reached" in str(told(RemoteStore("s3://photos/images"), what))
    # An answer that ends early, each time.
    answering((200, b"pho", 100))
    assert isinstance(told(RemoteStore("s3://photos/images"), "read"), StorageError)


def test_a_short_fault_is_got_over(answering: Callable[..., Answers]) -> None:
    answering(error("SlowDown", 503), (200, b"photo", None))
    assert RemoteStore("s3://photos/images").read(*PHOTO) == b"photo"


def test_bytes_that_end_early_are_asked_for_again(
    answering: Callable[..., Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_store, "_READS", 2)
    answering((200, b"pho", 5), (200, b"photo", None))
    assert RemoteStore("s3://photos/images").read(*PHOTO) == b"photo"


def test_keys_that_are_not_there_are_asked_for(
    s3: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "set AWS_ACCESS_KEY_ID" in str(told(RemoteStore(s3.address), "read"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert "set AWS_ACCESS_KEY_ID" in str(told(RemoteStore(s3.address), "read"))
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert "nobody" in str(told(RemoteStore(s3.address), "read"))
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no url")
    assert isinstance(told(RemoteStore(s3.address), "read"), WorkspaceError)


def test_a_package_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtraError, match=r"natadv-curate\[s3\]"):
        RemoteStore("s3://photos/images").read(*PHOTO)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3://", "not of the form"),
        ("s3:///images", "not of the form"),
        ("s3://photos/../other", "not of the form"),
        ("s3://photos//images", "not of the form"),
        ("s3://photos/images?versionId=1", "not of the form"),
        ("simplecache::s3://photos", "no folder in the workspace"),
        ("s3://photos::x", "not of the form"),
        ("s3://key:geheim@photos/images", "no keys"),
        ("sftp://me:geheim@host/images", "no keys"),
        ("s3://[photos", "not a URL"),
        ("memory://photos", "keeps nothing"),
        ("http://photos/images", "cannot be written"),
    ],
)
def test_an_address_that_is_no_store_is_refused(tmp_path: Path, address: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        open_store(address, tmp_path)
    assert "geheim" not in str(caught.value)


def test_an_unknown_kind_of_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="not known"):
        open_store("gopher://photos/images", tmp_path).read(*PHOTO)
