"""Runs a program that refuses to run as root, such as PostgreSQL, where the lab itself is root's.

``python -m airflow_eos_provider.lab.unprivileged PROGRAM ARGUMENT…`` becomes another user and then that program, under
the same process id. No user is made and no folder's permissions change, though folders above the lab's (``/root``) may
be closed to everybody else:

* In a user namespace of its own, root is shown as an ordinary user but still owns root's files.
* Where a container forbids namespaces, the process becomes the ordinary user and keeps only the right to pass by file
  permissions (``CAP_DAC_OVERRIDE``). That one is handed on to the program as an ambient capability.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1


def unprivileged(command: list[str]) -> list[str]:
    """The command to run instead, so that it does not run as root; the command itself where this user is not root."""
    return [sys.executable, "-m", __name__, *command] if os.geteuid() == 0 else command


def ordinary_user() -> pwd.struct_passwd:
    """A user with a name (``initdb`` wants one) who is not root: ``nobody``, or the first in the list."""
    users = [user for user in pwd.getpwall() if user.pw_uid != 0]
    named = [user for user in users if user.pw_name == "nobody"]
    if not users:
        raise LookupError("This machine has no user but root, and PostgreSQL does not run as root.")
    return (named or users)[0]


def become(user: pwd.struct_passwd) -> None:
    """Make this process the user's."""
    try:
        _enter_namespace(user)
    except OSError:
        _switch(user)


def _enter_namespace(user: pwd.struct_passwd) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{user.pw_uid} {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{user.pw_gid} {gid} 1", encoding="ascii")


def _switch(user: pwd.struct_passwd) -> None:
    _call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    bit = 1 << _CAP_DAC_OVERRIDE
    effective_permitted_inheritable = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    _call("capset", header, effective_permitted_inheritable)
    _call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)


def _call(function: str, *arguments: object) -> None:
    """Call the C library; prctl takes words, which ctypes would pass as ints."""
    library = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
    if getattr(library, function)(*words) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def main(command: list[str]) -> None:
    """Become the ordinary user, and then the program."""
    become(ordinary_user())
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
