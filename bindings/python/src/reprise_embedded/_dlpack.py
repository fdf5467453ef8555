# SPDX-License-Identifier: Apache-2.0
"""DLPack's form of a buffer (dmlc/dlpack, version 0): a capsule that other libraries take."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, Tuple

import numpy as np

# DLDeviceType.
_CPU, _CUDA, _CUDA_HOST, _ROCM, _ROCM_HOST = 1, 2, 3, 10, 11
# What the host addresses.
HOST_TYPES = (_CPU, _CUDA_HOST, _ROCM_HOST)
# DLDataTypeCode, by NumPy's kind.
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _ManagedTensor(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor),
        ("manager_context", ctypes.c_void_p),
        ("deleter", _Deleter),
    ]


# What the takers of capsules use, by the tensor's address.
_taken: Dict[int, Tuple[Any, ...]] = {}
_NAME = b"dltensor"
_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _Destructor]
_api.PyCapsule_IsValid.restype = ctypes.c_int
_api.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]


def _delete(address: int) -> None:
    _taken.pop(address, None)


def _destroy(capsule: int) -> None:
    # Whoever took it has given it another name, and calls the deleter.
    if _api.PyCapsule_IsValid(capsule, _NAME):
        _delete(_api.PyCapsule_GetPointer(capsule, _NAME))


_DELETE = _Deleter(_delete)
_DESTROY = _Destructor(_destroy)


def check_dtype(dtype: np.dtype[Any]) -> None:
    """Errors: TypeError."""
    if dtype.kind not in _CODES or not dtype.isnative:
        raise TypeError(f"dtype: got {dtype}, allowed: bool, integers and floats of this machine")


def device_of(kind: str, ordinal: int, mapped: bool) -> Tuple[int, int]:
    """__dlpack_device__."""
    if kind == "cuda":
        return (_CUDA_HOST if mapped else _CUDA, ordinal)
    if kind == "hip":
        return (_ROCM_HOST if mapped else _ROCM, ordinal)
    return (_CPU, 0)


def capsule_of(buffer: Any, address: int, device: Tuple[int, int]) -> Any:
    """A capsule over memory that `buffer` owns, which is kept as long as it is used."""
    ndim = len(buffer.shape)
    shape = (ctypes.c_int64 * ndim)(*buffer.shape)
    managed = _ManagedTensor()
    managed.tensor.data = address
    managed.tensor.device = _Device(*device)
    managed.tensor.ndim = ndim
    bits = 8 * buffer.dtype.itemsize
    managed.tensor.dtype = _DataType(_CODES[buffer.dtype.kind], bits, 1)
    managed.tensor.shape = shape
    managed.deleter = _DELETE
    where = ctypes.addressof(managed)
    _taken[where] = (managed, shape, buffer)
    return _api.PyCapsule_New(where, _NAME, _DESTROY)


def addresses(kind: str, ordinal: int, where: Tuple[int, int]) -> bool:
    """Whether a device addresses memory of this __dlpack_device__."""
    if kind == "cuda":
        return where[0] == _CUDA_HOST or where == (_CUDA, ordinal)
    if kind == "hip":
        return where[0] == _ROCM_HOST or where == (_ROCM, ordinal)
    return where[0] in HOST_TYPES


def tensor_of(name: str, capsule: Any) -> Tuple[int, int, Tuple[int, int]]:
    """Address, bytes and device of what a capsule holds, which stays its own.

    Errors: TypeError for what is no such capsule, ValueError for an array with gaps.
    """
    address = id(capsule)
    if type(capsule).__name__ != "PyCapsule" or not _api.PyCapsule_IsValid(address, _NAME):
        raise TypeError(f"{name}: got {capsule!r} of __dlpack__, allowed: a capsule of version 0")
    where = _api.PyCapsule_GetPointer(address, _NAME)
    tensor = _ManagedTensor.from_address(where).tensor
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    dense, stride = True, 1
    if tensor.strides:
        for i in reversed(range(tensor.ndim)):
            dense = dense and (shape[i] == 1 or tensor.strides[i] == stride)
            stride *= shape[i]
    if not dense:
        raise ValueError(f"{name}: got an array with gaps, allowed: dense, row by row")
    count = 1
    for size in shape:
        count *= size
    nbytes = count * tensor.dtype.lanes * tensor.dtype.bits // 8
    begin = (tensor.data or 0) + tensor.byte_offset
    return begin, nbytes, (tensor.device.device_type, tensor.device.device_id)
