#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program `batchd` from outside: commands, exit codes, signals, probes.

Usage: program_test.py PATH_OF_BATCHD [unittest arguments]
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

BATCHD = ""
TIMEOUT_SECONDS = 60


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("BATCHD_")}
    return {**kept, **more}


def run(*arguments, **env):
    return subprocess.run([BATCHD, *arguments], capture_output=True, text=True,
                          timeout=TIMEOUT_SECONDS, env=environment(**env))


class Daemon:
    """A daemon as a child; ready once made."""

    def __init__(self, *arguments, **env):
        self.process = subprocess.Popen([BATCHD, "serve", "--http", "127.0.0.1:0", *arguments],
                                        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment(**env))
        self.log = ""
        for line in self.process.stderr:
            self.log += line
            if " I ready " in line:
                self.http = re.search(r"http=(\S+)", line)[1]
                return
        raise AssertionError(f"daemon did not start: {self.log}")

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def end(self, signal_number=signal.SIGTERM):
        """Exit code, and all that it has logged."""
        self.process.send_signal(signal_number)
        return self.wait()

    def wait(self):
        self.output, rest = self.process.communicate(timeout=TIMEOUT_SECONDS)
        self.log += rest
        return self.process.returncode

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="bd")
        self.addCleanup(shutil.rmtree, self.folder)
        self.socket = f"{self.folder}/sock"

    def start(self, *arguments, **env):
        daemon = Daemon("--listen", f"unix:{self.socket}", *arguments, **env)
        self.addCleanup(daemon.kill)
        return daemon

    def pictures(self, count=12):
        path = f"{self.folder}/images"
        made = run("demo", "--make-images", path, "--count", str(count))
        self.assertEqual(made.returncode, 0, made.stderr)
        return path

    def test_a_wrong_flag_is_refused_with_its_value_and_limit(self):
        for arguments, said in (
            (["serve", "--listen", "unix:/tmp/x", "--cpus", "0"], "--cpus=0: must be"),
            (["serve", "--listen", "unix:/tmp/x", "--memory", "lots"], "--memory=lots: must be"),
            (["serve", "--listen", "0.0.0.0:9476"], "--i-trust-this-network"),
            (["serve"], "--listen is missing"),
            (["serve", "--no-such-flag"], "--no-such-flag"),
            (["plan", self.folder, "--batch-size", "0"], "--batch-size"),
            (["nonsense"], "nonsense"),
            ([], "a command is missing"),
        ):
            with self.subTest(arguments=arguments):
                done = run(*arguments)
                self.assertEqual(done.returncode, 64, done.stderr)
                self.assertIn(said, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_memory_above_the_machine_is_refused_with_both_numbers(self):
        done = run("serve", "--listen", f"unix:{self.socket}", "--memory", "900T")

        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"--memory=\d+ .* above .* \d+ bytes")

    def test_a_wrong_configuration_file_is_named(self):
        with open(f"{self.folder}/c.json", "w") as file:
            file.write('{"lissten": []}')

        done = run("serve", "--config", file.name)

        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn(f'{file.name}: unknown key "lissten"', done.stderr)

    def test_help_lists_the_exit_codes(self):
        for arguments in (["--help"], ["serve", "--help"]):
            done = run(*arguments)
            self.assertEqual(done.returncode, 0)
            self.assertIn("75 another daemon holds the socket", done.stdout)
        self.assertRegex(run("--version").stdout, r"^batchd \d+\.\d+\.\d+\n$")

    def test_probes_and_metrics_of_a_daemon(self):
        daemon = self.start()

        self.assertEqual(daemon.get("/livez"), (200, "ok\n"))
        self.assertEqual(daemon.get("/readyz"), (200, "ok\n"))
        self.assertEqual(daemon.get("/nothing")[0], 404)
        self.assertIn("0 sessions", daemon.get("/")[1])
        status, text = daemon.get("/metrics")
        self.assertIn("batchd_ready 1", text)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                 capture_output=True)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        self.assertEqual(run("health", "--http", daemon.http).returncode, 0)

    def test_status_answers_in_text_and_json(self):
        self.start("--cpus", "2", "--memory", "256M")

        text = run("status", f"unix:{self.socket}")
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertIn("2 CPU threads", text.stdout)
        answer = json.loads(run("status", f"unix:{self.socket}", "--format", "json").stdout)
        self.assertEqual(answer["cpu_threads"], 2)
        self.assertEqual(answer["sessions"], [])

    def test_nobody_at_the_address_is_an_error(self):
        self.assertEqual(run("status", f"unix:{self.socket}").returncode, 69)
        daemon = self.start()
        self.assertEqual(daemon.end(), 0)
        self.assertEqual(run("health", "--http", daemon.http).returncode, 1)

    def test_a_signal_drains_and_leaves_no_socket(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            daemon = self.start()
            self.assertTrue(os.path.exists(self.socket))

            self.assertEqual(daemon.end(number), 0, daemon.log)

            self.assertIn("draining", daemon.log)
            self.assertFalse(os.path.exists(self.socket))
            self.assertEqual(daemon.output, "")

    def test_a_second_daemon_is_refused_by_the_first_ones_pid(self):
        first = self.start()

        second = run("serve", "--http", "127.0.0.1:0", "--listen", f"unix:{self.socket}")

        self.assertEqual(second.returncode, 75, second.stderr)
        self.assertIn(str(first.process.pid), second.stderr)
        self.assertEqual(first.get("/readyz")[0], 200)

    def test_a_daemon_takes_the_place_of_one_that_was_killed(self):
        self.start().kill()

        self.assertEqual(self.start().end(), 0)

    def test_an_http_address_in_use_is_refused(self):
        first = self.start()

        second = run("serve", "--http", first.http, "--listen", f"unix:{self.folder}/other")

        self.assertEqual(second.returncode, 69, second.stderr)
        self.assertIn(first.http, second.stderr)
        self.assertFalse(os.path.exists(f"{self.folder}/other"))

    def test_a_private_daemon_ends_after_its_linger(self):
        daemon = self.start("--private", BATCHD_PRIVATE_LINGER_SECONDS="0.2")

        self.assertEqual(daemon.wait(), 0, daemon.log)

        self.assertIn("the last client is gone", daemon.log)
        self.assertFalse(os.path.exists(self.socket))

    def test_json_logs_are_json(self):
        process = subprocess.Popen(
            [BATCHD, "serve", "--http", "127.0.0.1:0", "--listen", f"unix:{self.socket}",
             "--log-format", "json"], stderr=subprocess.PIPE, text=True, env=environment())
        lines = []
        for line in process.stderr:
            lines.append(json.loads(line))
            if lines[-1]["event"] == "ready":
                break
        process.terminate()
        rest = process.communicate(timeout=TIMEOUT_SECONDS)[1]

        lines += [json.loads(line) for line in rest.splitlines()]
        self.assertEqual(process.returncode, 0)
        self.assertEqual(lines[-1]["event"], "ended")

    def test_the_service_manager_is_told(self):
        import socket
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(f"{self.folder}/notify")
            manager.settimeout(TIMEOUT_SECONDS)
            daemon = self.start(NOTIFY_SOCKET=f"{self.folder}/notify")
            self.assertEqual(manager.recv(100), b"READY=1")
            self.assertEqual(daemon.end(), 0)
            self.assertEqual(manager.recv(100), b"STOPPING=1")

    def test_plugins_lists_what_the_schemas_say(self):
        listed = json.loads(run("plugins", "--format", "json").stdout)

        operations = {entry["name"]: entry for entry in listed["operations"]}
        self.assertEqual(operations["DecodeImage"]["stage"], "source")
        self.assertEqual(operations["RandomResizedCrop"]["stage"], "transform")
        self.assertIn("ImageFolder", [entry["name"] for entry in listed["datasets"]])
        self.assertIn("jpeg", [entry["name"] for entry in listed["decoders"]])
        self.assertIn("### RandomResizedCrop", run("plugins", "--format", "markdown").stdout)

    def test_plan_says_what_an_epoch_will_be(self):
        folder = self.pictures(10)

        done = run("plan", folder, "--batch-size", "2", "--world-size", "2", "--rank", "1",
                   "--format", "json")

        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertEqual(plan["samples"], 10)
        self.assertEqual(plan["classes"], 4)
        self.assertEqual(plan["global_batch_size"], 4)
        self.assertEqual(plan["steps"], 3)
        self.assertEqual(plan["first_ordinals"], [2, 3])
        self.assertEqual(plan["last_batch_rows"], 0)
        self.assertGreater(plan["slab_size_bytes"], 2 * 224 * 224 * 3)

    def test_plan_of_nothing_is_refused(self):
        done = run("plan", f"{self.folder}/none", "--batch-size", "2")

        self.assertEqual(done.returncode, 65, done.stderr)
        self.assertIn(f"{self.folder}/none", done.stderr)

    def test_index_is_written_into_the_folder(self):
        folder = self.pictures(10)

        done = run("index", folder)

        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("10 samples", done.stdout)
        self.assertTrue(os.path.exists(f"{folder}/.batchd-index"))

    def test_check_has_a_line_for_each_check(self):
        done = run("check", "--listen", f"unix:{self.socket}", "--cpus", "1")

        self.assertEqual(done.returncode, 0, done.stdout)
        for what in ("cores", "memory", "cgroup", "memfd", "openat2", "pidfd", "files", "config",
                     "socket", "budget"):
            self.assertRegex(done.stdout, rf"(?m)^(ok|note)\s+{what} ")
        missing = run("check", "--listen", f"unix:{self.folder}/none/sock")
        self.assertEqual(missing.returncode, 1)
        self.assertRegex(missing.stdout, r"(?m)^FAIL\s+socket ")

    def test_demo_reads_an_epoch_and_leaves_nothing_behind(self):
        done = run("demo", "--count", "50", TMPDIR=self.folder)

        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"50 images in 2 batches, .* images/s")
        self.assertEqual(os.listdir(self.folder), [])

    def test_pictures_are_the_same_every_time(self):
        first = self.pictures(5)
        content = {}
        for round_number in range(2):
            for path, _, names in os.walk(first):
                for name in names:
                    with open(f"{path}/{name}", "rb") as file:
                        content.setdefault(name, set()).add(file.read())
            if round_number == 0:
                shutil.rmtree(first)
                self.pictures(5)
        self.assertEqual([len(seen) for seen in content.values()], [1] * 5)


if __name__ == "__main__":
    BATCHD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
