# SPDX-License-Identifier: Apache-2.0
"""Reads the GPU code that a build of Reprise embeds: what each compiled kernel takes of a device.

Used by kernel_resources.py. No vendor's tool is needed to read it: CUDA fat binaries hold one ELF
file per architecture, bundles of clang's offloading too, and both state registers and shared memory
in their notes. Matrix instructions are counted in the code: on NVIDIA by the opcode in the
instruction word, on AMD in LLVM's disassembly.
"""

import dataclasses
import pathlib
import re
import struct
import subprocess
import tempfile


class CodeError(Exception):
    """Device code that cannot be read; the message says which file and what was expected."""


@dataclasses.dataclass
class Kernel:
    target: str
    name: str
    threads: int
    registers: int  # 32-bit, per thread; on CDNA both kinds together
    accumulators: int  # of these, CDNA's accumulation registers
    scalar_registers: int  # per warp; AMD alone
    static_shared_bytes: int
    scratch_bytes: int  # of a thread, in device memory: spills and whatever else found no register
    spilled_scalars: int  # scalar registers kept in lanes of vector registers; AMD alone
    matrix_instructions: int
    code_bytes: int


def is_matrix_kernel(name):
    """Whether a kernel must use matrix instructions."""
    return re.fullmatch(r"reprise_(linear|attention_\w+)_(matrix|group)_\w+", name) is not None


# ---- ELF, 64 bits, little endian ----


class Elf:
    """Sections and symbols of an ELF file in memory."""

    def __init__(self, data, what):
        if data[:5] != b"\x7fELF\x02":
            raise CodeError(f"{what}: not a 64-bit ELF file")
        self.data = data
        (table,) = struct.unpack_from("<Q", data, 40)
        count, names = struct.unpack_from("<HH", data, 60)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * i) for i in range(count)]
        self.sections = [(_string_at(data, headers[names][4] + h[0]), h) for h in headers]

    def contents(self, name):
        for section, header in self.sections:
            if section == name:
                return self.data[header[4] : header[4] + header[5]]
        return b""

    def symbols(self):
        """(name, kind, size) of every symbol, by its index."""
        for _, header in self.sections:
            if header[1] == 2:  # SHT_SYMTAB
                strings = self.sections[header[6]][1][4]
                data = self.data[header[4] : header[4] + header[5]]
                return [(_string_at(self.data, strings + s[0]), s[1] & 15,
                         s[5]) for s in struct.iter_unpack("<IBBHQQ", data)]
        return []


def _string_at(data, offset):
    return data[offset : data.index(b"\0", offset)].decode()


# ---- NVIDIA ----

# Attributes in .nv.info, as `cuobjdump --dump-resource-usage` reports them.
_MAX_THREADS, _FRAME_SIZE, _REGISTER_COUNT = 0x05, 0x11, 0x2F
_SIZED = 4  # format of an attribute that carries its size and that many bytes
# Low 12 bits of the 128-bit instruction word.
_HMMA = 0x23C  # sm_80 to sm_90
_HGMMA = 0x5A7  # sm_90a


def _attributes(data):
    offset = 0
    while offset + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, offset)
        offset += 4
        if form == _SIZED:
            yield attribute, data[offset : offset + size]
            offset += size


def read_fat_binary(path):
    """The kernels of a CUDA fat binary whose entries are not compressed."""
    data = path.read_bytes()
    if len(data) < 16 or struct.unpack_from("<I", data)[0] != 0xBA55ED50:
        raise CodeError(f"{path}: not a CUDA fat binary")
    kernels, offset = [], 16
    while offset < len(data):
        kind, _, header, size = struct.unpack_from("<HHIQ", data, offset)
        (arch,) = struct.unpack_from("<I", data, offset + 28)
        (flags,) = struct.unpack_from("<I", data, offset + 40)
        if kind == 2:  # machine code; 1 is PTX
            target = f"sm_{arch}{'a' if flags >> 20 & 1 else ''}"
            kernels += _read_cubin(data[offset + header : offset + header + size], target,
                                   f"{path} ({target})")
        offset += header + size
    return kernels


def _read_cubin(data, target, what):
    elf = Elf(data, f"{what}; compressed entries cannot be read (nvcc --compress-mode=none)")
    names = [symbol[0] for symbol in elf.symbols()]
    registers, frames = {}, {}
    for attribute, value in _attributes(elf.contents(".nv.info")):
        if attribute in (_REGISTER_COUNT, _FRAME_SIZE):
            symbol, number = struct.unpack("<II", value)
            (registers if attribute == _REGISTER_COUNT else frames)[names[symbol]] = number
    sections = dict(elf.sections)
    # sm_90 counts the kilobyte that the system takes of every block; it is no share of the
    # kernel's.
    reserved = 1024 if ".nv.shared.reserved.0" in sections else 0
    kernels = []
    for section, header in elf.sections:
        if not section.startswith(".text."):
            continue
        name = section[len(".text.") :]
        text = data[header[4] : header[4] + header[5]]
        threads = [struct.unpack("<III", v)[0] for a,
                   v in _attributes(elf.contents(f".nv.info.{name}")) if a == _MAX_THREADS]
        if not threads or name not in registers:
            raise CodeError(
                f"{what}: {name} states no register count or no thread count (__launch_bounds__)")
        shared = sections.get(f".nv.shared.{name}")
        kernels.append(
            Kernel(
                target=target,
                name=name,
                threads=threads[0],
                registers=registers[name],
                accumulators=0,
                scalar_registers=0,
                static_shared_bytes=max(0, shared[5] - reserved) if shared else 0,
                scratch_bytes=frames.get(name, 0),
                spilled_scalars=0,
                matrix_instructions=sum(low & 0xFFF in (_HMMA, _HGMMA) for low,
                                        _ in struct.iter_unpack("<QQ", text)),
                code_bytes=len(text),
            )
        )
    return kernels


# ---- AMD ----

_DISASSEMBLER = "llvm-objdump-19"
# by the kernel's dtype, so that a kernel cannot hide behind another type's instructions
_MATRIX_MNEMONIC = {
    "bf16": re.compile(r"\bv_(mfma|wmma)_f32_16x16x16_?bf16"),
    "f16": re.compile(r"\bv_(mfma|wmma)_f32_16x16x16_?f16"),
}


def read_bundle(path):
    """The kernels of a bundle of AMD code objects, as clang writes it for --offload-device-only."""
    data = path.read_bytes()
    magic = b"__CLANG_OFFLOAD_BUNDLE__"
    if not data.startswith(magic):
        raise CodeError(f"{path}: not an uncompressed clang offload bundle")
    (count,) = struct.unpack_from("<Q", data, len(magic))
    kernels, at = [], len(magic) + 8
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", data, at)
        triple = data[at + 24 : at + 24 + length].decode()
        at += 24 + length
        if triple.startswith("hip") and size:
            target = triple.rsplit("-", 1)[-1]
            kernels += _read_code_object(data[offset : offset + size], target, f"{path} ({target})")
    return kernels


def _read_code_object(data, target, what):
    elf = Elf(data, what)
    code_bytes = {name: size for name, kind, size in elf.symbols() if kind == 2}  # STT_FUNC
    metadata = _metadata(elf.contents(".note"), what)
    names = [kernel[".name"] for kernel in metadata]
    counts = _count_matrix_instructions(data, what) if any(map(is_matrix_kernel, names)) else {}
    return [
        Kernel(
            target=target,
            name=kernel[".name"],
            threads=kernel[".max_flat_workgroup_size"],
            registers=kernel[".vgpr_count"],
            accumulators=kernel.get(".agpr_count", 0),
            scalar_registers=kernel[".sgpr_count"],
            static_shared_bytes=kernel[".group_segment_fixed_size"],
            scratch_bytes=kernel[".private_segment_fixed_size"],
            spilled_scalars=kernel[".sgpr_spill_count"],
            matrix_instructions=counts.get(kernel[".name"], 0),
            code_bytes=code_bytes.get(kernel[".name"], 0),
        )
        for kernel in metadata
    ]


def _metadata(note, what):
    """The kernels in the note NT_AMDGPU_METADATA."""
    if len(note) < 12:
        raise CodeError(f"{what}: no note with AMDGPU metadata")
    owner, size, kind = struct.unpack_from("<III", note)
    if kind != 32:
        raise CodeError(f"{what}: the first note is of type {kind}; expected AMDGPU metadata, 32")
    start = 12 + (owner + 3) // 4 * 4
    value, _ = _unpack(note[start : start + size], 0)
    return value["amdhsa.kernels"]


def _unpack(data, at):
    """One MessagePack value, of the kinds that AMDGPU metadata has; returns it and what follows."""
    kind = data[at]
    at += 1
    if kind <= 0x7F:
        return kind, at
    if kind >= 0xE0:
        return kind - 256, at
    if kind in (0xC2, 0xC3):
        return kind == 0xC3, at
    if kind in (0xCC, 0xCD, 0xCE, 0xCF):
        size = 1 << (kind - 0xCC)
        return int.from_bytes(data[at : at + size], "big"), at + size
    size = None
    if 0xA0 <= kind <= 0xBF:
        size = kind & 31
    elif kind in (0xD9, 0xDA):
        width = 1 << (kind - 0xD9)
        size, at = int.from_bytes(data[at : at + width], "big"), at + width
    if size is not None:
        return data[at : at + size].decode(), at + size
    count = None
    if 0x80 <= kind <= 0x9F:
        count = kind & 15
    elif kind in (0xDC, 0xDE):
        count, at = int.from_bytes(data[at : at + 2], "big"), at + 2
    if count is None:
        raise CodeError(f"AMDGPU metadata: MessagePack type 0x{kind:02x} is not expected there")
    if 0x90 <= kind <= 0x9F or kind == 0xDC:
        values = []
        for _ in range(count):
            value, at = _unpack(data, at)
            values.append(value)
        return values, at
    pairs = {}
    for _ in range(count):
        key, at = _unpack(data, at)
        pairs[key], at = _unpack(data, at)
    return pairs, at


def _count_matrix_instructions(data, what):
    """By kernel, in the disassembly."""
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(data)
        file.flush()
        try:
            run = subprocess.run([_DISASSEMBLER, "-d", "--no-show-raw-insn", file.name],
                                 capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise CodeError(f"{what}: needs {_DISASSEMBLER} (Debian: llvm-19)") from None
    if run.returncode != 0:
        raise CodeError(f"{what}: {_DISASSEMBLER} failed: {run.stderr.strip()}")
    counts = {}
    for part in re.split(r"^[0-9a-f]+ <(?=\w+>:$)", run.stdout, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition(">:")
        pattern = _MATRIX_MNEMONIC["bf16" if "_bf16" in name else "f16"]
        counts[name] = sum(1 for _ in pattern.finditer(body))
    return counts


# ---- a build ----


def read_build(build):
    """All kernels of a build folder, {target: {name: Kernel}}. Raises CodeError where there are
    none.
    """
    folder = pathlib.Path(build) / "kernels" / "device_code"
    kernels = []
    for path in sorted(folder.glob("reprise_cuda_*.bin")):
        kernels += read_fat_binary(path)
    for path in sorted(folder.glob("reprise_hip_*.bin")):
        kernels += read_bundle(path)
    if not kernels:
        raise CodeError(
            f"{folder}: no reprise_cuda_*.bin and no reprise_hip_*.bin; build the preset cuda or "
            "hip first")
    targets = {}
    for kernel in kernels:
        of_target = targets.setdefault(kernel.target, {})
        if kernel.name in of_target:
            raise CodeError(f"{folder}: {kernel.name} is there twice for {kernel.target}")
        of_target[kernel.name] = kernel
    return targets
