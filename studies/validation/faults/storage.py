"""Faults of stored trees and of the folders that commands write."""

from ardvark.studies.validation.faults.fault import Fault

__all__ = ["FAULTS"]

TREES, ATOMIC = "diagnostics/storage/trees.py", "diagnostics/storage/atomic.py"
OF_TREES = "tests/diagnostics/storage/test_trees.py::"
KEPT, OF_KEPT = "ardvark/commands/kept.py", "tests/package/commands/test_kept.py::"

FAULTS = (
    Fault(
        "damage is not looked for",
        "store",
        TREES,
        "    _check_sums(path)\n    _check_codecs(path)",
        "    _check_codecs(path)",
        (OF_TREES + "test_damage_is_named",),
        "a defect of 0.1.0: a deleted chunk was read as NaN",
    ),
    Fault(
        "a codec may run code",
        "store",
        TREES,
        "                if codec not in CODECS:",
        "                if codec is None:",
        (
            "tests/package/commands/test_commands.py::test_a_hostile_tree_is_refused_and_nothing_of_it_runs",
        ),
    ),
    Fault(
        "files get their name before they are on the disk",
        "store",
        ATOMIC,
        "        if durable:\n            _to_disk(partial)\n",
        "",
        (OF_TREES + "test_files_reach_the_disk_before_they_get_their_name",),
        "a defect of 0.1.0: no fsync",
    ),
    Fault(
        "temporaries are named by the process",
        "store",
        ATOMIC,
        'return path.with_name(f".{path.name}.{uuid4().hex}{PART}")',
        'return path.with_name(f".{path.name}.{os.getpid()}")',
        (OF_TREES + "test_a_stale_temporary_of_the_same_process_number_is_no_obstacle",),
        "a defect of 0.1.0: a finished fit died in a container",
    ),
    Fault(
        "what a failed write left stays",
        "store",
        ATOMIC,
        "    finally:\n        _delete(partial)\n\n\ndef write_text",
        "    finally:\n        pass\n\n\ndef write_text",
        (OF_TREES + "test_nothing_stays_of_a_write_that_fails",),
        "a defect of 0.1.0: partial trees blocked the next try",
    ),
    Fault(
        "two writers at a time",
        "store",
        ATOMIC,
        "            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "            pass",
        (OF_TREES + "test_the_second_writer_waits_or_is_refused",),
        "a defect of 0.1.0: Directory not empty",
    ),
    Fault(
        "one folder, two data sets",
        "store",
        KEPT,
        "            self._refuse_another(asked)\n",
        "",
        (OF_KEPT + "test_one_folder_is_of_one_data_set",),
        "a defect of 0.1.0: both compared as fits of the second",
    ),
    Fault(
        "a page that cannot be written is found out at the end",
        "store",
        "diagnostics/report/page.py",
        "        try_target(path)\n",
        "        pass\n",
        (OF_KEPT + "test_a_page_that_cannot_be_written_is_refused_before_a_fit",),
        "a defect of 0.1.0: refused after minutes of fits",
    ),
    Fault(
        "a tree without its settings answers any question",
        "store",
        KEPT,
        "        if tree.attrs.get(KEY) != run_key(self.prepared, name, settings, self.task):",
        "        if tree.attrs.get(KEY) is None:",
        ("tests/package/commands/test_cli.py::test_fit_stores_trees_that_compare_reads",),
    ),
)
