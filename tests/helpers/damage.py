"""Ways in which a stored tree can be damaged on disk."""

import shutil

CHUNK = "posterior/w/c/0/0/0"


def delete_chunk(store):
    (store / CHUNK).unlink()


def flip_byte(store):
    content = bytearray((store / CHUNK).read_bytes())
    content[-3] ^= 1
    (store / CHUNK).write_bytes(content)


def cut_chunk(store):
    content = (store / CHUNK).read_bytes()
    (store / CHUNK).write_bytes(content[: len(content) // 2])


def remove_group(store):
    shutil.rmtree(store / "fit")


def change_metadata(store):
    path = store / "posterior" / "zarr.json"
    path.write_text(path.read_text("utf-8").replace("iid", "IID"), encoding="utf-8")


def add_chunk(store):
    shutil.copy(store / CHUNK, store / "posterior/w/c/0/0/1")


def cut_checksums(store):
    (store / "checksums.json").write_text("{", encoding="utf-8")


def remove_root(store):
    (store / "zarr.json").unlink()
