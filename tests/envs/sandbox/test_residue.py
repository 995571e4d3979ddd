"""A program's text and words leave nothing in the memory that the next program starts from."""

from __future__ import annotations

from prorl.envs.sandbox.jobs import Job

# searches the heap and Python's arenas; writing from an address that is not mapped fails instead of crashing
SEARCH = """
import ctypes, os, re
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
libc.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
libc.write.restype = ctypes.c_ssize_t
reader, writer = os.pipe()
PAGE = 4096

def pages(address, step):
    while libc.write(writer, address, PAGE) == PAGE:
        yield os.read(reader, PAGE)
        address += step

def memory():
    end = libc.sbrk(0) // PAGE * PAGE
    yield from pages(end - PAGE, -PAGE)
    for thing in (object(), pages, os.environ, [0] * 1000):
        here = id(thing) // PAGE * PAGE
        yield from pages(here, PAGE)
        yield from pages(here - PAGE, -PAGE)

mark = re.compile(rb"(SOURCE|INPUT|OUTPUT|OWN)_MARK_[0-9]{4}")  # which does not match itself
text = "OWN_MARK_4567"
found = set()
size = 0
for page in memory():
    size += 1
    found.update(mark.findall(page))
print(size > 500, sorted(found))
"""


def test_nothing_of_an_earlier_program_is_in_memory(sandbox):
    source, words = (
        "# SOURCE_MARK_1234\n" * 1000,
        "INPUT_MARK_3456 " * 1000,
    )  # small texts would be overwritten soon
    script = source + "import sys\nprint(sys.stdin.read(), ('OUTPUT' + '_MARK_2345 ') * 1000)"
    function = source + "def f(x): return [x, ('OUTPUT' + '_MARK_2345 ') * 1000]"
    secret = Job(source=script, inputs=(words,))
    call = Job(source=function, entry="f", inputs=([words],))
    for job in (secret, call) * 3:
        assert "OUTPUT_MARK_2345" in str(sandbox.run(job)[0].value)
    (result,) = sandbox.run(Job(source=SEARCH, inputs=("",)))
    assert (result.status, result.value) == ("ok", "True [b'OWN']\n")
