# SPDX-License-Identifier: BSD-3-Clause
"""What may be handed to the library of a tensor, and how the others are copied in and out."""
import torch

from . import _native

DTYPES = {
    getattr(torch, name): number
    for number, name in enumerate(_native.DTYPES)
    if hasattr(torch, name)
}
_BYTE = _native.DTYPES.index("uint8")


def check(tensor, doing):
    """Refuses what has no plain memory here."""
    if tensor.layout != torch.strided:
        raise NotImplementedError(f"ringfold: {doing} of sparse tensors is not supported")
    if tensor.device.type != "cpu":
        raise NotImplementedError(
            f"ringfold: {doing} of a tensor on {tensor.device}: only CPU tensors are supported")
    if tensor.is_quantized:
        raise NotImplementedError(f"ringfold: {doing} of quantized tensors is not supported")


def check_output(tensor, doing):
    """Also refuses what cannot be written to: several elements in one place."""
    check(tensor, doing)
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        raise NotImplementedError(
            f"ringfold: {doing} into an expanded tensor, whose elements share memory; clone() it")


def plain(tensor):
    """Whether its memory is its elements in order."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def reduced_dtype(tensor, doing):
    """The library's constant for a type that it can reduce."""
    number = DTYPES.get(tensor.dtype)
    if number is None:
        raise NotImplementedError(
            f"ringfold: {doing} of {tensor.dtype} is not supported; it has "
            f"{', '.join(_native.DTYPES)}")
    return number


def moved_dtype(tensor):
    """For calls that only move elements: the constant, and how many of it make an element. Types
    that the library does not have go as bytes."""
    number = DTYPES.get(tensor.dtype)
    return (_BYTE, tensor.element_size()) if number is None else (number, 1)


def empty(count, like):
    return torch.empty(count, dtype=like.dtype, device="cpu")


def fill(target, source):
    """Copies, whatever the thread's or the tensor's state with respect to gradients is."""
    with torch.inference_mode(target.is_inference()), torch.no_grad():
        target.detach().copy_(source.view(target.shape))


class Staging:
    """The copies that a call needs: made in memory of their own before it, and written back when it
    has ended well. hold keeps everything alive until then."""

    def __init__(self):
        self.hold, self._back = [], []

    def _copy(self, tensor):
        staged = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        fill(staged, tensor.detach())
        return staged

    def read(self, tensor, doing):
        """A plain tensor with the elements of one that is only read."""
        check(tensor, doing)
        use = tensor if plain(tensor) else self._copy(tensor)
        self.hold.append(use)
        return use

    def update(self, tensor, doing, reads=True):
        """A plain tensor to be written, that also has the elements of the one given if it is read
        as well."""
        check_output(tensor, doing)
        use = tensor
        if not plain(tensor):
            use = self._copy(tensor) if reads else empty(tensor.shape, tensor)
            self._back.append((tensor, use))
        self.hold.append(use)
        return use

    def write(self, tensor, doing):
        """A plain tensor to be written."""
        return self.update(tensor, doing, reads=False)

    def join(self, tensors, doing):
        """The elements of all, one after the other."""
        for tensor in tensors:
            check(tensor, doing)
        joined = empty(sum(tensor.numel() for tensor in tensors), tensors[0])
        at = 0
        for tensor in tensors:
            fill(joined[at : at + tensor.numel()].view(tensor.shape), tensor.detach())
            at += tensor.numel()
        self.hold.append(joined)
        return joined

    def spread(self, tensors, doing):
        """A plain tensor to be written whose elements then go to all, one after the other."""
        for tensor in tensors:
            check_output(tensor, doing)
        joined = empty(sum(tensor.numel() for tensor in tensors), tensors[0])
        self.spread_from(joined, tensors)
        self.hold.append(joined)
        return joined

    def spread_from(self, joined, tensors):
        """Has the elements of joined go to all when the call has ended well."""
        at = 0
        for tensor in tensors:
            self._back.append((tensor, joined[at : at + tensor.numel()]))
            at += tensor.numel()

    def finish(self):
        for target, source in self._back:
            fill(target, source)
