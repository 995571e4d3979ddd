"""Verifiers for the tests of the judge; a module of its own because the worker processes import it by name."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from prorl.envs.types import Verdict


def obey(problem, text):
    """Do what the text says: a number is the score, anything else is a way to misbehave."""
    command, _, argument = text.partition(" ")
    match command:
        case "hang":
            while True:
                pass
        case "start":  # a program that outlives its patience
            child = subprocess.Popen(["sleep", "60"])
            Path(argument).write_text(str(child.pid))
            child.wait()
        case "exit":
            os._exit(int(argument))
        case "die":  # and leave a trace
            with Path(argument).open("a") as file:
                file.write("x")
            os._exit(3)
        case "meet":  # somebody who reads this process's id, and takes it away
            Path(argument).write_text(str(os.getpid()))
            while Path(argument).exists():
                time.sleep(0.01)
            return Verdict(score=1.0, status="ok")
        case "sys.exit":
            sys.exit(3)
        case "raise":
            raise ZeroDivisionError("by zero")
        case "quote":
            raise ValueError("half a \ud83d")
        case "None":
            return None
        case "scoreless":
            return Verdict(score=None, status="ok")
        case "print":
            print("........")
            os.write(1, b"........")
            return Verdict(score=1.0, status="ok")
        case "hash":
            return Verdict(score=1.0, status="ok", note=str(hash("x")))
        case "pid":
            return Verdict(score=1.0, status="ok", note=str(os.getpid()))
        case "eat":
            return Verdict(score=1.0, status="ok", note=str(len(bytearray(int(argument)))))
        case "about":
            note = f"torch={'torch' in sys.modules} threads={os.environ['OMP_NUM_THREADS']} nice={os.nice(0)}"
            note += f" timer={signal.getitimer(signal.ITIMER_REAL)[0]:g}"
            return Verdict(score=1.0, status="ok", note=note)
        case "sleep":
            time.sleep(float(argument))
            return Verdict(score=1.0, status="ok")
    return Verdict(score=float(text), status="ok", note=problem.prompt)


def make_obey():
    return obey


def make_obey_slowly():
    time.sleep(0.6)  # longer than the deadline of an item
    return obey


def make_nothing():
    raise FileNotFoundError("no such data set")


def make_exit():
    os._exit(7)
