"""Fetching and unpacking, from a real server on this machine: what goes well, and everything that goes
wrong."""

import hashlib
import http.server
import io
import stat
import tarfile
import threading
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from wane.streams import Archive, DataError, data_root, load_dataset
from wane.streams.cifar import CIFAR100
from wane.streams.fetch import ensure_folder


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; a name in `cut` is cut off half way."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cut, self.requests = {}, set(), []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.lstrip("/")
        self.server.requests.append(name)
        content = self.server.files.get(name)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if name in self.server.cut else content)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def tar_gz(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


GOOD = {"toy/a.bin": bytes(range(256)) * 400, "toy/sub/b.txt": b"hello"}
MAKERS = {"toy.tar.gz": tar_gz, "toy.zip": zipped}


def offer(server, name, content):
    server.files[name] = content
    url = f"http://127.0.0.1:{server.server_port}/{name}"
    return Archive(url, f"md5:{hashlib.md5(content).hexdigest()}", "toy", ("a.bin", "sub/b.txt"))


def refuse(archive, root, words, **options):
    """It must fail with these words, and leave nothing but what was there before."""
    before = sorted(root.rglob("*")) if root.exists() else []
    with pytest.raises(DataError, match=words) as caught:
        ensure_folder(archive, root, **options)
    assert (sorted(root.rglob("*")) if root.exists() else []) == before
    return str(caught.value)


@pytest.mark.parametrize("name", MAKERS)
def test_fetch_once_then_use(server, tmp_path, name, capsys):
    archive = offer(server, name, MAKERS[name](GOOD))
    root = tmp_path / "new" / "root"
    folder = ensure_folder(archive, root)
    assert folder == root / "toy"
    assert {f"toy/{p.relative_to(folder).as_posix()}": p.read_bytes() for p in folder.rglob("*") if p.is_file()} == GOOD
    assert sorted(p.name for p in root.iterdir()) == ["toy"]  # neither the archive nor scratch is left
    assert archive.url in capsys.readouterr().err
    ensure_folder(archive, root)
    assert server.requests == [name]


def test_local_archive_is_used_and_kept(server, tmp_path):
    archive = offer(server, "toy.zip", zipped(GOOD))
    (tmp_path / "toy.zip").write_bytes(server.files["toy.zip"])
    ensure_folder(archive, tmp_path, download=False)
    assert server.requests == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy", "toy.zip"]


def test_not_found(server, tmp_path):
    archive = replace(offer(server, "toy.zip", b""), url=f"http://127.0.0.1:{server.server_port}/gone.zip")
    assert "gone.zip" in refuse(archive, tmp_path, "could not fetch .*404")


def test_no_server(tmp_path):
    refuse(Archive("http://127.0.0.1:9/toy.zip", "md5:0", "toy", ()), tmp_path, "could not fetch .*toy.zip")


def test_connection_cut_half_way(server, tmp_path):
    archive = offer(server, "toy.zip", zipped(GOOD))
    server.cut.add("toy.zip")
    refuse(archive, tmp_path, r"could not fetch .*toy.zip|toy.zip .* is damaged")


def test_wrong_checksum(server, tmp_path):
    archive = replace(offer(server, "toy.zip", zipped(GOOD)), checksum="md5:" + "0" * 32)
    message = refuse(archive, tmp_path, "is damaged or not the right file")
    assert hashlib.md5(server.files["toy.zip"]).hexdigest() in message
    (tmp_path / "toy.zip").write_bytes(b"put there by hand, but broken")
    refuse(archive, tmp_path, r"toy.zip \(29 bytes.*delete it if you put it there")


def test_download_forbidden(server, tmp_path):
    archive = offer(server, "toy.zip", zipped(GOOD))
    refuse(archive, tmp_path, "does not exist and download=False: .*toy.zip", download=False)
    assert server.requests == []


@pytest.mark.parametrize("name", MAKERS)
def test_truncated_archive_with_a_matching_checksum(server, tmp_path, name):
    content = MAKERS[name](GOOD)
    refuse(offer(server, name, content[: len(content) // 2]), tmp_path, f"could not unpack .*{name}")


@pytest.mark.parametrize("name", MAKERS)
def test_not_an_archive(server, tmp_path, name):
    refuse(offer(server, name, b"<html>moved</html>" * 100), tmp_path, f"could not unpack .*{name}")


def test_damaged_inside(server, tmp_path):
    content = bytearray(zipped(GOOD))
    content[500] ^= 0xFF  # in the stored bytes of a.bin, which have a CRC
    refuse(offer(server, "toy.zip", bytes(content)), tmp_path, r"could not unpack .*CRC")


@pytest.mark.parametrize("path", ["../evil", "toy/../../evil", "/tmp/evil-wane", "..\\evil", "C:\\evil", "C:/evil"])
@pytest.mark.parametrize("name", MAKERS)
def test_paths_that_climb_out(server, tmp_path, name, path):
    root = tmp_path / "root"
    root.mkdir()
    message = refuse(offer(server, name, MAKERS[name](GOOD | {path: b"boo"})), root, "climbs out")
    assert "evil" in message
    assert sorted(tmp_path.iterdir()) == [root]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar(server, tmp_path, kind):
    link = tarfile.TarInfo("toy/link")
    link.type, link.linkname = kind, "/etc/passwd"
    refuse(offer(server, "toy.tar.gz", tar_gz(GOOD | {link: b""})), tmp_path, "link or device, 'toy/link'")


def test_symbolic_link_in_a_zip(server, tmp_path):
    link = zipfile.ZipInfo("toy/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    refuse(offer(server, "toy.zip", zipped(GOOD | {link: b"/etc/passwd"})), tmp_path, "link or device")


def test_wrong_contents(server, tmp_path):
    refuse(
        offer(server, "toy.zip", zipped({"toy/a.bin": b""})),
        tmp_path,
        "toy.zip has no sub/b.txt: .*not the archive",
    )
    refuse(offer(server, "toy.zip", zipped({"other/a.bin": b""})), tmp_path, "has no a.bin")


def test_incomplete_folder_is_left_alone_and_named(server, tmp_path):
    (tmp_path / "toy").mkdir()
    refuse(offer(server, "toy.zip", zipped(GOOD)), tmp_path, "toy has no a.bin: delete the folder")


def test_root_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    refuse(offer(server, "toy.zip", zipped(GOOD)), tmp_path / "file" / "root", "cannot write below .*WANE_DATA")


def test_two_at_once(server, tmp_path):
    archive = offer(server, "toy.tar.gz", tar_gz(GOOD))
    failures = []

    def fetch():
        try:
            ensure_folder(archive, tmp_path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy"]


def test_root_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("WANE_DATA", str(tmp_path))
    assert data_root() == tmp_path
    assert data_root("elsewhere").name == "elsewhere"
    monkeypatch.delenv("WANE_DATA")
    assert "wane" in str(data_root())


def test_cifar100_end_to_end(server, tmp_path):
    def records(n):
        array = np.zeros((n, 3074), np.uint8)
        array[:, 0], array[:, 1] = 19, np.arange(n) % 100
        array[:, 2:] = np.arange(n)[:, None] % 251
        return array.tobytes()

    names = "".join(f"class{i}\n" for i in range(100)).encode()
    folder = "cifar-100-binary"
    members = {f"{folder}/train.bin": records(50_000), f"{folder}/test.bin": records(10_000)}
    content = tar_gz(members | {f"{folder}/fine_label_names.txt": names})
    archive = replace(offer(server, "c.tar.gz", content), folder=folder, members=CIFAR100.members)
    data = load_dataset("cifar100", root=tmp_path, per_class=3, resolution=16, holdout=1, _archive=archive)
    assert (len(data.train), len(data.holdout), len(data.test)) == (200, 100, 10_000)
    assert data.image_shape == (3, 16, 16)
    assert data.class_names[99] == "class99"
    assert data.mean == (0.5071, 0.4867, 0.4408)
    train = tmp_path / folder / "train.bin"
    train.write_bytes(train.read_bytes()[:-3074])
    with pytest.raises(DataError, match=r"train.bin has 153,696,926 bytes, not the 153,700,000 of 50,000 images"):
        load_dataset("cifar100", root=tmp_path, download=False)


def test_cifar10_from_a_folder(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "batches.meta.txt").write_text("airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n")
    for i, name in enumerate([*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]):
        records = np.zeros((10_000, 3073), np.uint8)
        records[:, 0] = (np.arange(10_000) + i) % 10
        records[:, 1:1025], records[:, 2049:] = i, 200 + i  # red and blue planes, to see their order
        records.tofile(folder / name)
    data = load_dataset("cifar10", root=tmp_path, download=False)
    assert (len(data.train), len(data.test), data.class_names[9]) == (50_000, 10_000, "truck")
    assert data.train.images[::10_000, :, 31, 31].tolist() == [[i, 0, 200 + i] for i in range(5)]
    assert data.train.labels[::10_000].tolist() == [0, 1, 2, 3, 4]
    assert data.test.images[0, :, 0, 0].tolist() == [5, 0, 205]
    (folder / "test_batch.bin").write_bytes(bytes([10]) * (10_000 * 3073))
    with pytest.raises(DataError, match=r"test_batch.bin holds the label 10, there are only 10 classes"):
        load_dataset("cifar10", root=tmp_path, download=False)


def test_encrypted_zip_is_named(server, tmp_path):
    content = bytearray(zipped(GOOD))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag "encrypted" of each member
        at = -1
        while (at := content.find(mark, at + 1)) >= 0:
            content[at + offset] |= 1
    refuse(offer(server, "toy.zip", bytes(content)), tmp_path, "could not unpack .*toy.zip .*encrypted")


def test_a_python_that_cannot_unpack_safely_says_so(server, tmp_path, monkeypatch):
    monkeypatch.delattr(tarfile, "data_filter")
    refuse(offer(server, "toy.tar.gz", tar_gz(GOOD)), tmp_path, r"cannot unpack .* safely: use 3.11.4 or later")
