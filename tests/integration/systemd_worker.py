"""A program in the place of a worker, for tests of its unit: ``systemd_worker.py CONFIG PORT``. It needs no JVM.

It prints the settings' block as Connect does, and listens. Its configuration may hold ``exactly.once.source.support``
(``broken`` ends it at once), ``stop.seconds`` (how long it takes to stop), and ``stop.gate`` (a file without which it
does not stop).
"""

from __future__ import annotations

import http.server
import os
import signal
import sys
import time
from datetime import datetime
from pathlib import Path

PROVIDED = "${env:MODE}"


def main() -> None:
    config, port = Path(sys.argv[1]), int(sys.argv[2])
    lines = config.read_text(encoding="utf-8").splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    mode = settings.get("exactly.once.source.support", "disabled")
    mode = os.environ.get("MODE", "disabled") if mode == PROVIDED else mode
    say(f"[{datetime.now().isoformat(' ', 'milliseconds')}] INFO DistributedConfig values: ")
    say(f"\tbootstrap.servers = [127.0.0.1:9092]\n\texactly.once.source.support = {mode}\n\tgroup.id = units")
    say(f"[{datetime.now().isoformat(' ', 'milliseconds')}] INFO ProducerConfig values: ")
    if mode == "broken":
        say("ERROR Stopping due to error: password=hunter22")
        sys.exit("org.apache.kafka.common.config.ConfigException: Invalid value broken")

    def stop(*_: object) -> None:
        time.sleep(float(settings.get("stop.seconds", "0")))
        while "stop.gate" in settings and not Path(settings["stop.gate"]).exists():
            time.sleep(0.05)
        say("INFO Kafka Connect stopped")
        os._exit(143)

    signal.signal(signal.SIGTERM, stop)
    http.server.HTTPServer(("127.0.0.1", port), http.server.BaseHTTPRequestHandler).serve_forever()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
