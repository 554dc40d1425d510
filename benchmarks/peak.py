"""``python -m benchmarks.peak COMMAND ...`` prints the most memory that it had resident, in bytes.

The kernel counts from the fork on, so that what the process that forks holds would count too. This
one holds nothing.
"""

import os
import subprocess
import sys

if __name__ == "__main__":
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL) as child:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    print(used.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
    sys.exit(child.returncode)
