"""Public data sets: found in a folder, or downloaded to it once.

The folder is `GPF_DATA` or, without that, `gpf` in the user's cache folder. Files keep the layout of their own
distributions, so existing copies are used. An interrupted download resumes; it is checked, and gets its name only when
it is complete.
"""

import fcntl
import gzip
import hashlib
import http.client
import os
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.runs.progress import steps_progress

CHUNK = 1 << 18
TIMEOUT = 30.0
"""Seconds without an answer after which there is no network."""

Images = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images, and their classes."""


@dataclass(frozen=True)
class Source:
    """A file, and where it comes from."""

    path: str
    """Where it lies in the data folder."""
    url: str
    digest: str
    """MD5, or SHA-256, of what it holds: of a .gz file, of what that unpacks to, for packing differs."""


CIFAR10 = Source(
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
)
CIFAR10_FILES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
"""Contents of the archive, with the MD5 of each file."""
MNIST = {
    name: Source(f"MNIST/raw/{name}.gz", f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz", digest)
    for name, digest in {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }.items()
}
SHAKESPEARE = Source(
    "tinyshakespeare/input.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
GPT2 = {
    name: Source(f"gpt2/{name}", f"https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/{name}", digest)
    for name, digest in {
        "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
        "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    }.items()
}


def data_folder() -> Path:
    """Where data sets are kept."""
    if "GPF_DATA" in os.environ:
        return Path(os.environ["GPF_DATA"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gpf"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpf"


def cifar10() -> tuple[Images, Images]:
    """50,000 images of ten classes to learn from and 10,000 to test on: bytes, (n, 3072), in three planes of colour."""
    folder = data_folder() / "cifar-10-batches-bin"
    if not _whole(folder):
        _unpack(fetch(CIFAR10), folder)
    *training, test = (_cifar10_batch(folder / name, digest) for name, digest in CIFAR10_FILES.items())
    return (
        np.concatenate([images for images, _ in training]),
        np.concatenate([classes for _, classes in training]),
    ), test


def _cifar10_batch(path: Path, digest: str) -> Images:
    """The images and classes of one file."""
    content = path.read_bytes()
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != digest:
        raise _damaged(path)
    records = np.frombuffer(content, np.uint8).reshape(-1, 3073)  # a class, then three planes of 1,024 pixels
    return np.ascontiguousarray(records[:, 1:]), records[:, 0].astype(np.int64)


def mnist() -> tuple[Images, Images]:
    """60,000 digits to learn from and 10,000 to test on: bytes, (n, 784)."""
    parts = {name: _idx(_checked(source)) for name, source in MNIST.items()}
    return (
        (parts["train-images-idx3-ubyte"].reshape(60_000, 784), parts["train-labels-idx1-ubyte"].astype(np.int64)),
        (parts["t10k-images-idx3-ubyte"].reshape(10_000, 784), parts["t10k-labels-idx1-ubyte"].astype(np.int64)),
    )


def tinyshakespeare() -> str:
    """The text, 1,115,394 characters."""
    return _checked(SHAKESPEARE).read_text()


def gpt2_encoding() -> Any:
    """GPT-2's byte-pair vocabulary of 50,257 tokens, as tiktoken's encoding."""
    try:
        import tiktoken
        from tiktoken.load import data_gym_to_mergeable_bpe_ranks
    except ImportError:
        raise ValueError("GPT-2's vocabulary needs the extra text: pip install 'gpf-networks[text]'") from None
    files = {name: str(_checked(source)) for name, source in GPT2.items()}
    ranks = data_gym_to_mergeable_bpe_ranks(
        vocab_bpe_file=files["vocab.bpe"],
        encoder_json_file=files["encoder.json"],
        vocab_bpe_hash=GPT2["vocab.bpe"].digest,
        encoder_json_hash=GPT2["encoder.json"].digest,
    )
    return tiktoken.Encoding(
        "gpt2",
        explicit_n_vocab=50_257,
        pat_str=r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": 50_256},
    )


def fetch(source: Source) -> Path:
    """Where a file is; it is downloaded if it is not there."""
    path = data_folder() / source.path
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.parent):
            if not path.exists():  # another process may just have downloaded it
                _download_whole(source, path)
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(
            f"data: {source.url} cannot be downloaded to {path.parent} ({_reason(error)}); put the file there as"
            f" {path}, or set GPF_DATA to a folder that contains {source.path}"
        ) from None
    return path


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While it lasts, no other process downloads or unpacks to a folder."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _download_whole(source: Source, path: Path) -> None:
    """Download to a path, at which nothing appears but what it should be."""
    unfinished = path.with_name(f"{path.name}.part")
    _download(source.url, unfinished)
    found = digest_of(unfinished, source.digest, _packed(path))
    if found != source.digest:
        unfinished.unlink()
        raise ValueError(
            f"data: {source.url} has the digest {found} instead of {source.digest}; put the correct file there as"
            f" {path}"
        )
    unfinished.replace(path)


def _checked(source: Source) -> Path:
    """Like `fetch`, for a file that the user may have put there damaged."""
    path = fetch(source)
    if digest_of(path, source.digest, _packed(path)) != source.digest:
        raise _damaged(path)
    return path


def _damaged(path: Path) -> ValueError:
    return ValueError(f"{path} is damaged; replace it by the original, or delete it and it will be downloaded again")


def _packed(path: Path) -> bool:
    return path.suffix == ".gz" and not path.name.endswith(".tar.gz")


def digest_of(path: Path, like: str, packed: bool) -> str:
    """The MD5 or SHA-256 of a file, or of what it unpacks to; which of them, the length of another says."""
    digest = hashlib.md5(usedforsecurity=False) if len(like) == 32 else hashlib.sha256()
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            while part := file.read(CHUNK):
                digest.update(part)
    except (OSError, EOFError, zlib.error) as error:
        return f"of a damaged file: {error}"
    return digest.hexdigest()


def _download(url: str, unfinished: Path) -> None:
    """Download to a file, from where it ends."""
    begun = unfinished.stat().st_size if unfinished.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={begun}-"} if begun else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and begun:  # it is whole, or longer than what is there: its digest will tell
            return
        raise
    with answer:
        goes_on = answer.status == 206
        total = int(answer.headers.get("Content-Length") or 0) + (begun if goes_on else 0)
        done = begun if goes_on else 0
        with unfinished.open("ab" if goes_on else "wb") as file, steps_progress(url, total or 1) as progress:
            while part := answer.read(CHUNK):
                file.write(part)
                done += len(part)
                progress(done)
    if total and done < total:
        raise OSError(f"the connection broke after {done:,} of {total:,} bytes; the same command resumes the download")


def _whole(folder: Path) -> bool:
    return all((folder / name).exists() for name in CIFAR10_FILES)


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive of one folder; each file appears only when all are complete."""
    unfinished = folder.with_name(f".{folder.name}.new")
    with _alone(folder.parent):
        if _whole(folder):  # another process has just unpacked them
            return
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            with tarfile.open(archive, "r:gz") as files:
                files.extractall(unfinished, filter="data")
            folder.mkdir(exist_ok=True)
            for file in (unfinished / folder.name).iterdir():
                file.replace(folder / file.name)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _damaged(archive) from error
        except OSError as error:
            raise ValueError(
                f"data: {archive} cannot be unpacked ({error}); put its files into {folder}, or set GPF_DATA to a"
                " folder that can be written to"
            ) from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _idx(path: Path) -> NDArray[np.uint8]:
    """The numbers of an idx file."""
    with gzip.open(path) as file:
        held = file.read()
    return np.frombuffer(bytearray(held), np.uint8, offset=4 + 4 * held[3])  # that may be written to, as torch wants


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error)
