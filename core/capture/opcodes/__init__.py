"""Opcode handlers, one family a file; each method carries its opcode's name."""
