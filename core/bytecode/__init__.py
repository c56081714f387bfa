"""The bytecode of the running CPython: instructions, decoding, assembling, analyses, emitters, resume functions.

Enters: code objects. Leaves: code objects, and facts about them (live locals, handlers, stack depth).
Must not know: torch, guards, graphs, or why anyone wants to change a function.
`sys.version_info` is read here (opcodes.py) and nowhere else in core; what differs between versions stands as data in
py311.py, py312.py and py313.py.
"""

from .assemble import AssemblyError as AssemblyError
from .assemble import assemble as assemble
from .decode import DecodedCode as DecodedCode
from .decode import decode as decode
from .instruction import ExceptionEntry as ExceptionEntry
from .instruction import Instruction as Instruction
from .instruction import Position as Position
from .instruction import copied as copied
from .instruction import located as located
