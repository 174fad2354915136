"""Texts: the order, the names and the domains of documents, and one sentence for what cannot be read."""

import pytest

from wane.language.texts import TextsError, find_files, read_documents


def write(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def test_a_folder_is_read_whole_in_one_order_and_the_domain_is_the_files_name(tmp_path):
    write(tmp_path, b_dot_txt="two", a__z_dot_md="one", a__data_dot_bin=b"\0")
    found = list(read_documents(find_files([tmp_path])))
    assert [(d.name, d.text, d.domain) for d in found] == [("a/z.md", "one", "z"), ("b.txt", "two", "b")]


def test_lines_have_names_domains_and_the_columns_asked_for(tmp_path):
    lines = '{"text": "x", "domain": "law", "year": 3}\n\n{"text": "y", "topic": "b"}\n'
    files = find_files([write(tmp_path, n_dot_jsonl=lines) / "n.jsonl"])
    assert [(d.name, d.domain, d.columns) for d in read_documents(files, keep=["year"])] == [
        ("n.jsonl:1", "law", {"year": "3"}),
        ("n.jsonl:3", "n", {"year": ""}),
    ]
    with pytest.raises(TextsError, match=r"n.jsonl, line 1, has no column 'topic' to group by"):
        list(read_documents(files, by="topic"))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a_dot_jsonl": '{"text": 3}'}, "line 1, has no text in column 'text'"),
        ({"a_dot_jsonl": '{"body": "x"}'}, r"it has 'body'\): name the column with --text"),
        ({"a_dot_jsonl": '{"text": "x"}\n{'}, "is not JSON in line 2"),
        ({"a_dot_jsonl": "[" * 100_000}, "is not JSON in line 1"),
        ({"a_dot_txt": b"\xff\xfe"}, r"is not UTF-8 \(at byte 0\)"),
    ],
)
def test_broken_texts_are_one_sentence(tmp_path, files, message):
    with pytest.raises(TextsError, match=message):
        list(read_documents(find_files([write(tmp_path, **files)])))


def test_what_is_no_text_is_said(tmp_path):
    write(tmp_path, a_dot_txt="x", b__a_dot_txt="y", c_dot_bin="z")
    with pytest.raises(TextsError, match="is not a file or a folder"):
        find_files([tmp_path / "nothing"])
    with pytest.raises(TextsError, match=r"c.bin is no text that wane reads: give files that end in .txt"):
        find_files([tmp_path / "c.bin"])
    with pytest.raises(TextsError, match=r"two files are called a.txt"):
        find_files([tmp_path / "a.txt", tmp_path / "b" / "a.txt"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(TextsError, match="holds no texts"):
        find_files([tmp_path / "empty"])
