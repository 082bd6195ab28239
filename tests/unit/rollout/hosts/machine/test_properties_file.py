"""A worker's file on a machine, against real files, the real sudo and real file systems."""

from __future__ import annotations

import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError, PlanMovedError, RefusedError
from airflow_eos_provider.rollout.hosts.machine import properties_file
from airflow_eos_provider.rollout.hosts.machine.file_status import FileStatus, writable_by_others
from airflow_eos_provider.rollout.hosts.machine.machine import (
    COMMAND_SECONDS,
    Answer,
    CommandError,
    Machine,
    MachineLostError,
)
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.machine.properties_file import (
    PropertiesFile,
    backup_path,
    digest,
    mount_of,
    part_path,
    replacement_path,
)
from airflow_eos_provider.rollout.hosts.machine.sudo import Sudo
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from tests.private_machine import USERS, PrivateMachine, private_machine
from tests.sshd import running_sshd

OLD = b"group.id=connect\nexactly.once.source.support=disabled\n# \xff\n"
NEW = b"group.id=connect\nexactly.once.source.support=preparing\n# \xff\n"


def access_list(user: int, right: int) -> bytes:
    """An access list as Linux keeps it: the owner and one more user have the right, the group may read, others not."""
    none = 2**32 - 1
    entries = [(1, right | 6, none), (2, right, user), (4, 4, none), (16, right, none), (32, 0, none)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


ACCESS_LIST = access_list(65534, 4)

EVERYBODY = ["eos ALL=(ALL) NOPASSWD: ALL"]


@pytest.fixture(scope="module")
def shared() -> Iterator[PrivateMachine]:
    with private_machine() as machine:
        yield machine


@pytest.fixture
def machine(shared: PrivateMachine) -> PrivateMachine:
    shared.as_root("rm", "-rf", "/etc/sudoers.d/eos", str(shared.folder / "etc-kafka"))
    shared.commands.clear()
    return shared


def placed(machine: PrivateMachine, owner: str, *, mode: int = 0o640, folder_mode: int = 0o755) -> Path:
    """A worker's file in a folder of its owner's."""
    folder = machine.folder / "etc-kafka"
    folder.mkdir()
    path = folder / "connect-1.properties"
    path.write_bytes(OLD)
    machine.owned(path, owner, mode)
    machine.owned(folder, owner, folder_mode)
    return path


def far(machine: Machine, path: Path, *, sudo: bool = False) -> PropertiesFile:
    return PropertiesFile(machine, PurePosixPath(path), sudo=sudo)


def lines_of(machine: Machine, file: PropertiesFile) -> tuple[str, ...]:
    """What has to be granted for a file."""
    return Sudo(machine).lines(file.commands())


def beside(path: Path) -> set[str]:
    return {entry.name for entry in path.parent.iterdir()} - {path.name}


def replace(file: PropertiesFile, data: bytes = NEW, *, expect: bytes = OLD) -> None:
    file.replace(data, expect_sha256=digest(expect), backup=True)


def assert_unchangeable(file: PropertiesFile, what: str, refusal: str) -> None:
    """It is found without touching anything, and refused by the change itself."""
    assert what in str(file.obstacle_to_change())
    with pytest.raises((ConfigurationError, RefusedError), match=refusal):
        replace(file)


#: Runs a command of a machine as a test wants it: given its words, its input, and what runs it with an input.
Act = Callable[[Sequence[str], bytes, Callable[[bytes], Answer]], Answer]


class Acted:
    """A machine on which each command runs as a test wants it."""

    def __init__(self, machine: Machine, act: Act) -> None:
        self._machine = machine
        self._act = act
        self.name = machine.name

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = COMMAND_SECONDS) -> Answer:
        return self._act(words, stdin, lambda given: self._machine.run(words, stdin=given, seconds=seconds))

    def detached(self, words: Sequence[str], *, stdin: bytes = b"") -> Answer:
        raise NotImplementedError


def watched(machine: Machine, after: Callable[[], None]) -> Acted:
    """Something happens after each command."""

    def act(_words: Sequence[str], stdin: bytes, run: Callable[[bytes], Answer]) -> Answer:
        answer = run(stdin)
        after()
        return answer

    return Acted(machine, act)


def coarse(machine: Machine) -> Acted:
    """Its file system has a coarse clock: two changes within one tick look like one."""
    first: dict[tuple[str, ...], Answer] = {}

    def act(words: Sequence[str], stdin: bytes, run: Callable[[bytes], Answer]) -> Answer:
        answer = run(stdin)
        return first.setdefault(tuple(words), answer) if words[0] == "stat" else answer

    return Acted(machine, act)


def cut(machine: Machine, at: int, how: str = "after") -> Acted:
    """The connection is cut at one command, after it has run or in the midst of its input.

    Cut before a command is cut after the one before.
    """
    left = [at]

    def act(_words: Sequence[str], stdin: bytes, run: Callable[[bytes], Answer]) -> Answer:
        left[0] -= 1
        if left[0] > 0:
            return run(stdin)
        if left[0] == 0:
            run(stdin if how == "after" else stdin[: len(stdin) // 2])
        raise MachineLostError("cut", may_have_run=True)

    return Acted(machine, act)


class TestReading:
    def test_a_file_is_read_with_its_times(self, machine: PrivateMachine) -> None:
        path = placed(machine, "eos")
        os.utime(path, ns=(1, 1_700_000_000_123_456_789))
        content = far(machine, path).read()
        assert (content.data, content.sha256, content.path) == (OLD, digest(OLD), PurePosixPath(path))
        assert content.modified_at == pytest.approx(1_700_000_000.123456789)
        assert content.changed_at == pytest.approx(path.stat().st_ctime, abs=1e-6)
        assert (content.status.uid, content.status.size) == (USERS["eos"], len(OLD))
        assert "disabled" not in repr(content)

    def test_a_look_at_a_file_that_is_as_it_was_costs_one_command_and_no_sudo(
        self, machine: PrivateMachine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(properties_file, "TICK_SECONDS", 0.0)
        path = placed(machine, "kafka")
        machine.grant(EVERYBODY)
        file = far(machine, path, sudo=True)
        file.read()
        machine.commands.clear()
        assert file.read().data == OLD
        assert [words[0] for words in machine.commands] == ["stat"]
        path.write_bytes(NEW)
        assert file.read().data == NEW

    def test_bytes_that_were_read_within_a_tick_of_the_change_are_read_again(
        self, machine: PrivateMachine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = placed(machine, "eos")
        file = far(coarse(machine), path)
        file.read()
        path.write_bytes(NEW)
        assert file.read().data == NEW
        monkeypatch.setattr(properties_file, "TICK_SECONDS", 0.0)
        file.read()
        machine.commands.clear()
        file.read()
        assert [words[0] for words in machine.commands] == ["stat"]

    def test_links_are_followed_and_their_change_is_a_change(
        self, machine: PrivateMachine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(properties_file, "TICK_SECONDS", 0.0)
        path = placed(machine, "eos")
        other = path.with_name("other.properties")
        other.write_bytes(NEW)
        machine.owned(other, "eos", 0o644)
        os.utime(path, (0, 0))
        folder, link = path.parent / "conf", path.parent / "link"
        folder.symlink_to(path.parent.name + "/../.")
        link.symlink_to("conf/../conf/" + path.name)
        folder.unlink()
        folder.symlink_to(".")
        link.unlink()
        link.symlink_to("conf/" + path.name)
        file = far(machine, link)
        content = file.read()
        assert (content.path, content.data) == (PurePosixPath(path), OLD)
        assert content.changed_at == pytest.approx(max(folder.lstat().st_ctime, link.lstat().st_ctime), abs=1e-6)
        link.unlink()
        link.symlink_to(other)
        assert file.read().path == PurePosixPath(other)
        link.unlink()
        link.write_bytes(OLD)
        machine.owned(link, "eos", 0o644)
        assert file.read().path == PurePosixPath(link)

    def test_what_is_missing_or_no_file_is_said(self, machine: PrivateMachine) -> None:
        path = placed(machine, "eos")
        with pytest.raises(ConfigurationError, match=r"There is no file .*/none on connect-1"):
            far(machine, path.with_name("none")).read()
        with pytest.raises(ConfigurationError, match="no ordinary file"):
            far(machine, path.parent).read()
        with pytest.raises(ConfigurationError, match="not absolute"):
            PropertiesFile(machine, PurePosixPath("a/b"), sudo=False)
        circle = path.with_name("circle")
        circle.symlink_to(circle)
        with pytest.raises(ConfigurationError, match="cannot be read"):
            far(machine, circle).read()

    @pytest.mark.parametrize("folder_mode", [0o755, 0o700])
    def test_a_file_that_the_login_may_not_read_is_read_through_sudo(
        self, machine: PrivateMachine, folder_mode: int
    ) -> None:
        path = placed(machine, "kafka", folder_mode=folder_mode)
        with pytest.raises(ConfigurationError, match="Permission denied"):
            far(machine, path).read()
        file = far(machine, path, sudo=True)
        with pytest.raises(ConfigurationError, match="eos hosts sudoers"):
            file.read()
        machine.grant(lines_of(machine, file))
        assert far(machine, path, sudo=True).read().data == OLD
        assert file.read().data == OLD


class TestReplacing:
    def test_owner_mode_attributes_and_access_list_are_kept_and_the_old_bytes_stand_beside(
        self, machine: PrivateMachine
    ) -> None:
        path = placed(machine, "eos", mode=0o640)
        os.setxattr(path, "user.note", b"kept")
        os.setxattr(path, "system.posix_acl_access", ACCESS_LIST)
        was = path.stat()
        replace(far(machine, path))
        now = path.stat()
        assert path.read_bytes() == NEW
        assert (now.st_uid, now.st_gid, now.st_mode) == (was.st_uid, was.st_gid, was.st_mode)
        assert now.st_ino != was.st_ino
        assert os.getxattr(path, "user.note") == b"kept"
        assert os.getxattr(path, "system.posix_acl_access") == ACCESS_LIST
        backup = backup_path(path)
        assert (backup.read_bytes(), stat.S_IMODE(backup.stat().st_mode)) == (OLD, 0o600)
        assert beside(path) == {backup.name}

    def test_the_backup_may_never_be_read_by_others(self, machine: PrivateMachine) -> None:
        path = placed(machine, "eos", mode=0o644)
        os.setxattr(path.parent, "system.posix_acl_default", ACCESS_LIST)
        seen: list[int] = []

        def look() -> None:
            seen.extend(e.stat().st_mode for e in path.parent.iterdir() if "backup" in e.name)

        replace(far(watched(machine, look), path))
        assert seen
        assert {stat.S_IMODE(mode) for mode in seen} == {0o600}

    def test_a_link_is_kept_and_its_file_replaced(self, machine: PrivateMachine) -> None:
        path = placed(machine, "eos")
        link = path.with_name("link")
        link.symlink_to(path.name)
        replace(far(machine, link))
        assert link.is_symlink()
        assert path.read_bytes() == NEW

    def test_edit_and_restore(self, machine: PrivateMachine) -> None:
        path = placed(machine, "eos")
        file = far(machine, path)
        properties = {"exactly.once.source.support": "preparing"}
        planned = file.digest_with(properties)
        assert file.edit(properties, expect=digest(OLD)) == planned == digest(path.read_bytes()) == digest(NEW)
        assert file.backup_of(digest(OLD)) == OLD
        file.restore(expect=planned, original=digest(OLD))
        file.restore(expect=planned, original=digest(OLD))
        assert path.read_bytes() == OLD
        path.write_bytes(b"a=1\n")
        with pytest.raises(PlanMovedError, match="was edited"):
            file.restore(expect=planned, original=digest(OLD))
        with pytest.raises(RefusedError, match="differs from the worker's file"):
            file.backup_of(digest(NEW))
        backup_path(path).unlink()
        with pytest.raises(RefusedError, match="cannot be read"):
            file.backup_of(digest(OLD))

    @pytest.mark.parametrize("program", ["rm", "install", "cp", "dd", "mv", "sync"])
    def test_an_edit_meanwhile_is_kept(self, machine: PrivateMachine, program: str) -> None:
        path = placed(machine, "eos")
        changed = threading.Event()

        def edit() -> None:
            if machine.commands[-1][0] == program and not changed.is_set():
                changed.set()
                path.write_bytes(OLD + b"more=1\n")

        with pytest.raises(PlanMovedError, match="a moment ago"):
            replace(far(watched(machine, edit), path))
        assert path.read_bytes() == OLD + b"more=1\n"
        assert beside(path) <= {backup_path(path).name}

    def test_a_second_name_is_refused(self, machine: PrivateMachine) -> None:
        path = placed(machine, "eos")
        os.link(path, path.with_name("second"))
        assert_unchangeable(far(machine, path), "2 names", "hard links")


def test_a_connection_cut_at_any_command_leaves_one_whole_file_and_the_next_attempt_succeeds(
    machine: PrivateMachine,
) -> None:
    path = placed(machine, "eos")
    replaced = 0
    for at in range(1, 60):
        path.write_bytes(OLD)
        backup_path(path).unlink(missing_ok=True)
        try:
            replace(far(cut(machine, at), path))
            break
        except MachineLostError:
            pass
        left = path.read_bytes()
        assert left in (OLD, NEW), at
        assert left == OLD or backup_path(path).read_bytes() == OLD
        replaced += left == NEW
        if left == OLD:
            replace(far(machine, path))
        assert path.read_bytes() == NEW
        assert beside(path) <= {backup_path(path).name} or left == NEW
    else:
        pytest.fail("it never ends")
    assert at > 15
    assert replaced, "no cut came after the new file took over the name"


def test_a_rename_whose_answer_is_lost_is_looked_for(machine: PrivateMachine) -> None:
    path = placed(machine, "eos")
    lost = []

    def act(words: Sequence[str], stdin: bytes, run: Callable[[bytes], Answer]) -> Answer:
        answer = run(stdin)
        if (words[0], words[-1]) == ("mv", str(path)) and not lost:
            lost.append(words)
            raise MachineLostError("cut", may_have_run=True)
        return answer

    replace(far(Acted(machine, act), path))
    assert lost
    assert path.read_bytes() == NEW


def test_a_connection_cut_while_the_new_bytes_are_sent_leaves_the_old_file(machine: PrivateMachine) -> None:
    path = placed(machine, "eos")
    replace(far(machine, path))
    path.write_bytes(OLD)
    at = 1 + [words[0] for words in machine.commands].index("dd")
    with pytest.raises(MachineLostError):
        replace(far(cut(machine, at, "within"), path))
    assert path.read_bytes() == OLD
    assert part_path(path).read_bytes() == NEW[: len(NEW) // 2]
    replace(far(machine, path))
    assert path.read_bytes() == NEW
    assert beside(path) == {backup_path(path).name}


def test_two_attempts_at_once_leave_one_of_both_whole_files(machine: PrivateMachine) -> None:
    path = placed(machine, "eos")
    data = [OLD + letter * 200_000 + b"\n" for letter in (b"#a", b"#b")]
    ended: list[str] = []

    def attempt(new: bytes) -> None:
        try:
            replace(far(machine, path), new)
            ended.append("replaced")
        except EosError as error:
            ended.append(error.found)

    for _ in range(6):
        path.write_bytes(OLD)
        ended.clear()
        threads = [threading.Thread(target=attempt, args=(new,)) for new in data]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert path.read_bytes() in (OLD, *data)
        for thread in threads:
            thread.join()
        # Both may fail: where one has put the other's bytes in place, neither takes that for its own success.
        left = path.read_bytes()
        assert left in ((OLD, *data) if "replaced" not in ended else data), ended


@pytest.mark.parametrize("first_stops_before", range(1, 12))
def test_a_late_command_of_an_earlier_attempt_puts_no_half_file_in_place(
    machine: PrivateMachine, first_stops_before: int
) -> None:
    """The earlier attempt's renames come while the later one is anywhere."""
    path = placed(machine, "eos")
    late = [
        ("mv", "-T", "-f", "--", str(part_path(path)), str(replacement_path(path))),
        ("mv", "-T", "-f", "--", str(replacement_path(path)), str(path)),
    ]
    count = [0]

    def after() -> None:
        if machine.commands[-1][0] in ("rm", "install", "mv", "cp", "dd", "sync", "sha256sum"):
            count[0] += 1
            if count[0] == first_stops_before:
                machine.run_as("eos", *late[1])

    whole = [OLD, NEW]
    try:
        replace(far(watched(machine, after), path))
    except EosError:
        pass
    else:
        whole = [NEW]
    assert path.read_bytes() in whole


class TestSudo:
    def test_the_lines_are_all_that_is_needed_and_nothing_runs_as_root_in_a_folder_of_kafka(
        self, machine: PrivateMachine
    ) -> None:
        path = placed(machine, "kafka")
        lines = lines_of(machine, far(machine, path, sudo=True))
        assert f"eos ALL=(kafka) NOPASSWD: /usr/bin/cat -- {path}" in lines
        assert all(line.startswith("eos ALL=(kafka) NOPASSWD: /usr/bin/") for line in lines)
        machine.grant(lines)
        file = far(machine, path, sudo=True)
        assert file.obstacle_to_change() is None
        assert file.edit({"a": "b"}, expect=digest(OLD)) == digest(path.read_bytes())
        file.restore(expect=digest(path.read_bytes()), original=digest(OLD))
        assert path.read_bytes() == OLD
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (USERS["kafka"], 0o640)

    @pytest.mark.parametrize("mode", [0o755, 0o700])
    def test_a_file_of_root(self, machine: PrivateMachine, mode: int) -> None:
        path = placed(machine, "root", mode=0o600, folder_mode=mode)
        os.setxattr(path, "security.test", b"1")
        file = far(machine, path, sudo=True)
        machine.grant(lines_of(machine, file))
        assert file.obstacle_to_change() is None
        replace(file)
        assert path.read_bytes() == NEW
        assert os.getxattr(path, "security.test") == b"1"
        assert file.backup_of(digest(OLD)) == OLD

    def test_each_right_that_is_missing_is_found_before_anything_is_touched(self, machine: PrivateMachine) -> None:
        path = placed(machine, "kafka")
        lines = lines_of(machine, far(machine, path, sudo=True))
        for left_out in lines:
            machine.grant([line for line in lines if line != left_out])
            file = far(machine, path, sudo=True)
            try:
                obstacle = file.obstacle_to_change()
                found = bool(obstacle and "does not let eos run" in obstacle.what)
                file.read()
            except ConfigurationError:
                found = "cat --" in left_out
            assert found, left_out
        assert path.read_bytes() == OLD
        assert beside(path) == set()

    def test_a_right_that_is_taken_away_meanwhile_leaves_the_old_file(self, machine: PrivateMachine) -> None:
        path = placed(machine, "kafka")
        lines = lines_of(machine, far(machine, path, sudo=True))
        machine.grant([line for line in lines if "/usr/bin/dd" not in line])
        with pytest.raises(ConfigurationError, match="eos hosts sudoers"):
            replace(far(machine, path, sudo=True))
        assert path.read_bytes() == OLD
        assert beside(path) == {backup_path(path).name}

    def test_an_owner_or_a_group_that_a_new_file_cannot_get_is_refused(self, machine: PrivateMachine) -> None:
        path = placed(machine, "kafka")
        machine.owned(path, "root", 0o644)
        machine.grant(EVERYBODY)
        file = far(machine, path, sudo=True)
        assert_unchangeable(file, "belongs to root, and kafka", "belongs to root")
        assert beside(path) == set()
        machine.owned(path, "kafka", 0o640, group="other")
        words = "group other, which kafka is no member of"
        assert_unchangeable(file, words, words)

    def test_sudo_is_refused_where_an_access_list_lets_another_user_write(self, machine: PrivateMachine) -> None:
        """Of an access list, stat shows no more than that the group may write, here root's."""
        path = placed(machine, "root")
        os.setxattr(path.parent, "system.posix_acl_access", access_list(USERS["other"], 7))
        assert machine.run_as("other", "touch", str(path.parent / "x")).ok
        self.assert_no_sudo(machine, path)

    @pytest.mark.parametrize(("owner", "mode"), [("kafka", 0o755), ("root", 0o777), ("root", 0o775)])
    def test_sudo_is_refused_where_another_user_could_turn_it_to_other_files(
        self, machine: PrivateMachine, owner: str, mode: int
    ) -> None:
        path = placed(machine, "root")
        deeper = path.parent / "deeper"
        deeper.mkdir()
        file_path = path.rename(deeper / path.name)
        machine.owned(path.parent, owner, mode, group="kafka")
        self.assert_no_sudo(machine, file_path)

    def assert_no_sudo(self, machine: PrivateMachine, path: Path) -> None:
        machine.grant(EVERYBODY)
        file = far(machine, path, sudo=True)
        assert_unchangeable(file, "could put a link there", "could put a link")
        with pytest.raises(RefusedError, match="could put a link"):
            file.commands()
        assert path.read_bytes() == OLD

    def test_a_path_with_a_space_gets_no_lines(self, machine: PrivateMachine) -> None:
        path = placed(machine, "kafka")
        spaced = path.rename(path.with_name("connect 1.properties"))
        with pytest.raises(ConfigurationError, match="without spaces"):
            lines_of(machine, far(machine, spaced, sudo=True))

    def test_without_sudo_nothing_goes_through_it(self, machine: PrivateMachine) -> None:
        path = placed(machine, "kafka", mode=0o644)
        file = far(machine, path)
        assert file.commands() == ()
        assert_unchangeable(file, "eos may not give a new file", "eos may not give a new file")
        assert not any(words[0] == "sudo" for words in machine.commands)


class TestFileSystems:
    @pytest.fixture
    def mounted(self, machine: PrivateMachine) -> Iterator[Path]:
        """A file on a file system of 64 KiB; the path to look at it from here."""
        folder = machine.folder / "small"
        folder.mkdir(exist_ok=True)
        machine.as_root("mount", "-t", "tmpfs", "-o", f"size=64k,mode=755,uid={USERS['eos']}", "tmpfs", str(folder))
        machine.run(("dd", f"of={folder}/connect.properties"), stdin=OLD)
        yield folder / "connect.properties"
        machine.as_root("umount", str(folder))

    def seen(self, machine: PrivateMachine, path: Path) -> Path:
        return Path(f"/proc/{machine.pid}/root{path}")

    def test_a_full_disk_is_an_obstacle_and_leaves_the_old_file(self, machine: PrivateMachine, mounted: Path) -> None:
        file = far(machine, mounted)
        assert file.obstacle_to_change() is None
        inside = self.seen(machine, mounted)
        inside.with_name("filler").write_bytes(b"x" * 40_000)
        with pytest.raises(ConfigurationError, match=r"cannot be replaced.*No space left.*unchanged.*bytes are free"):
            replace(file, b"#" * 60_000)
        assert inside.read_bytes() == OLD
        assert {entry.name for entry in inside.parent.iterdir()} == {inside.name, "filler", backup_path(inside).name}
        machine.run_as("root", "dd", "if=/dev/zero", f"of={mounted.parent}/filler", "bs=4096")
        assert_unchangeable(far(machine, mounted), "bytes are free", "0 bytes are free")
        assert inside.read_bytes() == OLD

    def test_a_read_only_file_system_is_an_obstacle(self, machine: PrivateMachine, mounted: Path) -> None:
        machine.as_root("mount", "-o", "remount,ro", str(mounted.parent))
        assert_unchangeable(far(machine, mounted), "mounted read-only", "Read-only file system")

    def test_a_file_that_is_mounted_itself_is_an_obstacle(self, machine: PrivateMachine) -> None:
        path = placed(machine, "eos")
        machine.as_root("mount", "--bind", str(path), str(path))
        try:
            assert_unchangeable(far(machine, path), "mounted by itself", "cannot be replaced")
        finally:
            machine.as_root("umount", str(path))

    @pytest.mark.parametrize("what", ["file", "folder"])
    def test_an_immutable_file_or_folder_is_an_obstacle(self, machine: PrivateMachine, what: str) -> None:
        path = placed(machine, "root")
        target = path if what == "file" else path.parent
        machine.grant(EVERYBODY)
        answer = machine.run_as("root", "chattr", "+i", str(target))
        if not answer.ok:
            pytest.skip(f"this file system knows no immutable files: {answer.problem}")
        try:
            assert_unchangeable(far(machine, path, sudo=True), "immutable", "unchanged")
        finally:
            machine.as_root("chattr", "-i", str(target))

    def test_an_attribute_that_cannot_be_kept_leaves_the_old_file(self, machine: PrivateMachine) -> None:
        path = placed(machine, "eos")
        os.setxattr(path, "security.test", b"1")
        with pytest.raises(RefusedError, match=r"cannot be kept.*security\.test"):
            replace(far(machine, path))
        assert path.read_bytes() == OLD
        assert beside(path) == {backup_path(path).name}


def test_over_ssh_a_connection_that_is_killed_leaves_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "connect.properties"
    path.write_bytes(OLD)
    path.chmod(0o640)
    os.setxattr(path, "user.note", b"kept")
    with running_sshd(tmp_path / "sshd") as sshd:
        machine = machine_of(sshd.description())
        assert PropertiesFile(machine, PurePosixPath(path), sudo=False).obstacle_to_change() is None
        killed = 0

        def act(words: Sequence[str], stdin: bytes, run: Callable[[bytes], Answer]) -> Answer:
            nonlocal killed
            if words[0] in ("cp", "dd", "mv"):
                killed += sshd.kill_sessions()
            return run(stdin)

        try:
            replace(far(Acted(machine, act), path))
        except MachineLostError:
            left = path.read_bytes()
            assert left in (OLD, NEW)
            if left == OLD:
                replace(PropertiesFile(machine, PurePosixPath(path), sudo=False))
    assert killed
    assert path.read_bytes() == NEW
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.getxattr(path, "user.note") == b"kept"
    assert {entry.name for entry in tmp_path.iterdir()} <= {path.name, backup_path(path).name, "sshd"}


def status(uid: int, mode: int, gid: int = 0) -> FileStatus:
    return FileStatus(1, 1, mode, 2, uid, gid, 0, 0, 0, f"user-{uid}", f"group-{gid}")


def test_who_may_put_a_link_on_the_way() -> None:
    root, folder = PurePosixPath("/"), PurePosixPath("/a")
    assert writable_by_others([(root, status(0, 0o755)), (folder, status(7, 0o775, 7))], 7) is None
    assert writable_by_others([(root, status(0, 0o1777)), (folder, status(7, 0o700))], 7) is None
    for steps in (
        [(root, status(0, 0o755)), (folder, status(0, 0o1777))],
        [(root, status(0, 0o777)), (folder, status(0, 0o755))],
        [(root, status(0, 0o755)), (folder, status(8, 0o755))],
        [(root, status(0, 0o755)), (folder, status(0, 0o775, 9))],
        [(root, status(0, 0o775)), (folder, status(0, 0o755))],
    ):
        assert writable_by_others(steps, 0)


def test_the_mount_of_a_path_is_the_deepest_and_last_one() -> None:
    text = (
        "1 0 8:1 / / rw,relatime - ext4 /dev/a rw\n"
        "2 1 8:1 / /etc ro,relatime shared:1 - ext4 /dev/a rw\n"
        "3 1 8:1 / /with\\040space rw - ext4 /dev/a rw\n"
        "4 1 8:1 / /etc/kafka rw - ext4 /dev/a ro,errors=remount-ro\n"
    )
    assert mount_of(PurePosixPath("/etc/x"), text) == (PurePosixPath("/etc"), frozenset({"ro", "relatime", "rw"}))
    found = mount_of(PurePosixPath("/etc/kafka/x"), text)
    assert found[0] == PurePosixPath("/etc/kafka")
    assert mount_of(PurePosixPath("/with space/x"), text) == (PurePosixPath("/with space"), frozenset({"rw"}))
    assert mount_of(PurePosixPath("/x"), "nonsense") is None


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        ("stat", b"1/2/3\n"),
        ("stat", b"1/2/81a4/1/0/0/5/1.000000000/now/root/root\n" * 2),
        ("stat", b"1/2/81a4/1/0/0/5/1.000000000/1.000000000/root/root\n"),
        ("stat", b""),
        ("sha256sum", b""),
        ("sha256sum", b"a\nb\nc\n"),
    ],
)
def test_what_a_program_prints_otherwise_is_an_error_and_the_file_is_as_it_was(
    tmp_path: Path, program: str, printed: bytes
) -> None:
    path = tmp_path / "c.properties"
    path.write_bytes(OLD)

    def act(words: Sequence[str], stdin: bytes, run: Callable[[bytes], Answer]) -> Answer:
        return Answer(0, printed, b"") if words[0] == program else run(stdin)

    with pytest.raises(CommandError, match=f"output of {program} cannot be read"):
        replace(far(Acted(ThisMachine(), act), path))
    assert path.read_bytes() == OLD
    assert beside(path) == set()


def test_on_this_machine_errors_name_no_machine(tmp_path: Path) -> None:
    path = tmp_path / "connect.properties"
    path.write_bytes(OLD)
    file = far(ThisMachine(), path)
    assert file.obstacle_to_change() is None
    replace(file)
    assert path.read_bytes() == NEW
    with pytest.raises(PlanMovedError) as caught:
        replace(file)
    assert caught.value.found.startswith(f"{path} was edited")
