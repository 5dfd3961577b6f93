"""Data sets: read as they are, downloaded once, and whatever goes wrong said in one line."""

import gzip
import hashlib
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from gpf import data
from gpf.data import Source, fetch

CONTENT = bytes(range(256)) * 5000


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GPF_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def served():
    """A server of CONTENT under any name, that can break off and refuse; returns what it was asked, and what to do."""
    asked, does = [], {"break": None, "ranges": True}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("Range")))
            content = does.get(self.path, CONTENT)
            if content is None:
                self.send_error(404)
                return
            begin = int(self.headers["Range"][6:-1]) if self.headers.get("Range") and does["ranges"] else 0
            if begin >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(content) - begin))
            self.end_headers()
            self.wfile.write(content[begin : does["break"]])

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked, does
    server.shutdown()
    server.server_close()


def source(url, content=CONTENT, path="some/thing.bin"):
    return Source(path, f"{url}/thing", hashlib.sha256(content).hexdigest())


def test_cifar_10(with_data):
    (images, classes), (test_images, test_classes) = data.cifar10()
    assert images.shape == (50_000, 3072)
    assert images.dtype == np.uint8
    assert test_images.shape == (10_000, 3072)
    assert np.bincount(classes).tolist() == [5000] * 10
    assert np.bincount(test_classes).tolist() == [1000] * 10
    means = images.reshape(50_000, 3, 1024).mean(axis=(0, 2)) / 255
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)  # as everybody reports them


def test_mnist(with_data):
    (images, classes), (test_images, test_classes) = data.mnist()
    assert images.shape == (60_000, 784)
    assert test_images.shape == (10_000, 784)
    assert classes[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert np.bincount(test_classes).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert images.mean() / 255 == pytest.approx(0.1307, abs=1e-4)


def test_tinyshakespeare_and_its_tokens(with_data):
    text = data.tinyshakespeare()
    assert len(text) == 1_115_394
    encoding = data.gpt2_encoding()
    assert encoding.encode("Hello world") == [15496, 995]
    assert encoding.n_vocab == 50_257
    cut = len(text) * 9 // 10
    assert [len(encoding.encode(part)) for part in (text[:cut], text[cut:])] == [301_966, 36_059]
    assert encoding.decode(encoding.encode(text[:1000])) == text[:1000]


def test_a_file_is_downloaded_once(folder, served):
    url, asked, _ = served
    assert fetch(source(url)).read_bytes() == CONTENT
    assert fetch(source(url)) == folder / "some" / "thing.bin"
    assert asked == [("/thing", None)]
    assert [path.name for path in (folder / "some").iterdir()] == ["thing.bin"]


def test_two_at_once_download_it_once(folder, served):
    url, asked, _ = served
    with ThreadPoolExecutor(4) as pool:
        assert {path.read_bytes() for path in pool.map(fetch, [source(url)] * 4)} == {CONTENT}
    assert asked == [("/thing", None)]


def test_a_broken_download_goes_on_where_it_was(folder, served):
    url, asked, does = served
    does["break"] = 700_000
    with pytest.raises(ValueError, match=r"^data: http.* cannot be downloaded to .* \(.*700,000 of 1,280,000 bytes"):
        fetch(source(url))
    assert not (folder / "some" / "thing.bin").exists()
    assert (folder / "some" / "thing.bin.part").stat().st_size == 700_000
    does["break"] = None
    assert fetch(source(url)).read_bytes() == CONTENT
    assert asked == [("/thing", None), ("/thing", "bytes=700000-")]


@pytest.mark.parametrize("ranges", [True, False])
def test_what_is_left_of_an_earlier_download_is_completed_or_replaced(folder, served, ranges):
    """A server that knows no ranges sends everything again."""
    url, _, does = served
    does["ranges"] = ranges
    (folder / "some").mkdir(parents=True)
    (folder / "some" / "thing.bin.part").write_bytes(CONTENT[:1000])
    assert fetch(source(url)).read_bytes() == CONTENT


def test_a_wrong_file_is_refused_and_not_kept(folder, served):
    url, _, _ = served
    with pytest.raises(ValueError, match=r"^data: http.* has the digest \w+ instead of \w+") as caught:
        fetch(source(url, b"something else"))
    assert str(folder / "some" / "thing.bin") in str(caught.value)
    assert not list((folder / "some").iterdir())


def test_without_a_network_it_says_what_to_put_where(folder):
    with pytest.raises(ValueError, match=r"^data: .* cannot be downloaded to .*refused.*; put the file there") as error:
        fetch(source("http://127.0.0.1:1"))
    assert f"as {folder / 'some' / 'thing.bin'}, or set GPF_DATA to a folder that contains some/thing.bin" in str(
        error.value
    )
    assert "\n" not in str(error.value)


def test_a_folder_that_cannot_be_written_to(folder, served, tmp_path):
    (tmp_path / "data").write_text(
        "a file in the place of the folder"
    )  # whoever runs as root may write everywhere else
    with pytest.raises(ValueError, match=r"^data: .* cannot be downloaded to .*; put the file there"):
        fetch(source(served[0]))


def test_a_missing_page(folder, served):
    _, _, does = served
    does["/thing"] = None
    with pytest.raises(ValueError, match=r"^data: .* cannot be downloaded to .* \(HTTP 404\); put the file there"):
        fetch(source(served[0]))


def tiny_cifar(place, monkeypatch, images=3):
    """Files like CIFAR-10's, of a few random images each; their digests are those that are looked for."""
    place.mkdir(parents=True)
    random = np.random.default_rng(0)
    for name in data.CIFAR10_FILES:
        (place / name).write_bytes(random.integers(10, size=images * 3073, dtype=np.uint8).tobytes())
    digests = {name: hashlib.md5((place / name).read_bytes()).hexdigest() for name in data.CIFAR10_FILES}
    monkeypatch.setattr(data, "CIFAR10_FILES", digests)
    return [(place / name).read_bytes() for name in digests]


def test_cifar_is_unpacked_from_its_archive(folder, served, tmp_path, monkeypatch):
    url, _, does = served
    held = tiny_cifar(tmp_path / "cifar-10-batches-bin", monkeypatch)
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "cifar-10-batches-bin", "cifar-10-batches-bin")
    does["/thing"] = (tmp_path / "c.tar.gz").read_bytes()
    monkeypatch.setattr(data, "CIFAR10", source(url, does["/thing"], "cifar-10-binary.tar.gz"))
    (images, classes), (test_images, test_classes) = data.cifar10()
    records = np.frombuffer(b"".join(held), np.uint8).reshape(18, 3073)
    np.testing.assert_array_equal(np.concatenate([images, test_images]), records[:, 1:])
    np.testing.assert_array_equal(np.concatenate([classes, test_classes]), records[:, 0])
    assert len(images) == 15
    assert sorted(path.name for path in folder.iterdir()) == ["cifar-10-batches-bin", "cifar-10-binary.tar.gz"]


@pytest.mark.parametrize("name", data.CIFAR10_FILES)
@pytest.mark.parametrize("damage", ["one byte", "cut", "empty"])
def test_a_damaged_cifar_file_is_named(folder, monkeypatch, name, damage):
    """A size that is right is not enough: one wrong byte is found."""
    tiny_cifar(folder / "cifar-10-batches-bin", monkeypatch)
    path = folder / "cifar-10-batches-bin" / name
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes({"one byte": content, "cut": content[:3073], "empty": b""}[damage])
    with pytest.raises(ValueError, match=rf"^.*{name} is damaged; replace it by the original, or delete it and it"):
        data.cifar10()


def test_a_damaged_idx_file_is_named(folder):
    for name, one in data.MNIST.items():
        (folder / one.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / one.path).write_bytes(gzip.compress(name.encode()))
    with pytest.raises(ValueError, match=r"^/.*train-images-idx3-ubyte.gz is damaged; replace it"):
        data.mnist()
    packed = bytearray(gzip.compress(CONTENT))
    packed[30:60] = bytes(30)  # no longer what zlib can read
    (folder / data.MNIST["train-images-idx3-ubyte"].path).write_bytes(packed)
    with pytest.raises(ValueError, match=r"^/.*train-images-idx3-ubyte.gz is damaged; replace it"):
        data.mnist()


def test_a_text_that_was_cut_off_is_named(folder):
    (folder / "tinyshakespeare").mkdir(parents=True)
    (folder / "tinyshakespeare" / "input.txt").write_text("First Citizen:")
    with pytest.raises(ValueError, match=r"^/.*input.txt is damaged; replace it"):
        data.tinyshakespeare()


def test_a_damaged_vocabulary_is_named(folder):
    (folder / "gpt2").mkdir(parents=True)
    for name in data.GPT2:
        (folder / "gpt2" / name).write_text("{}")
    with pytest.raises(ValueError, match=r"^/.*encoder.json is damaged; replace it"):
        data.gpt2_encoding()


def test_an_archive_that_cannot_be_unpacked_says_what_to_put_where(folder, tmp_path):
    folder.mkdir()
    (tmp_path / "batch").write_text("of images")
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "batch", "cifar-10-batches-bin/batch")
    (folder / "cifar-10-batches-bin").write_text("a file in the place of the folder")
    with pytest.raises(
        ValueError, match=r"^data: .*tar.gz cannot be unpacked \(.*\); put its files into .*-bin, or"
    ) as error:
        data.cifar10()
    assert "\n" not in str(error.value)
    assert (folder / "cifar-10-batches-bin").read_text() == "a file in the place of the folder"


def test_a_damaged_archive_is_named_and_kept(folder):
    folder.mkdir()
    (folder / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(b"no archive"))
    with pytest.raises(ValueError, match=r"^/.*cifar-10-binary.tar.gz is damaged; replace it"):
        data.cifar10()
    assert [path.name for path in folder.iterdir()] == ["cifar-10-binary.tar.gz"]


def test_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GPF_DATA", str(tmp_path))
    assert data.data_folder() == tmp_path
    monkeypatch.delenv("GPF_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert data.data_folder() == tmp_path / "cache" / "gpf"
