# SPDX-License-Identifier: Apache-2.0
"""What every client needs: the facts about the node that run.py has made, and how to check them."""
import json
import os
import subprocess

FACTS = json.loads(os.environ["CLIENT_FACTS"])
LIMITED = FACTS["limited"]
MIB = 1 << 20


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def check_equal(found, wanted, what):
    check(found == wanted, f"{what}: {found}, not {wanted}")


def expect_error(error, function, *arguments):
    try:
        function(*arguments)
    except error:
        return
    raise AssertionError(f"{function.__name__} did not raise {error}")


def device_bytes():
    """What the simulated driver's own account says that is used of the first GPU."""
    shown = subprocess.run(FACTS["show"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(shown)["gpus"][0]["used_bytes"]
