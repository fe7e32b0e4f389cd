# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Policies as TFLite files, which development mode of the compiler evaluates with LiteRT.

The layout is that of the schema in the LiteRT package:
https://github.com/google-ai-edge/LiteRT/blob/main/tflite/converter/schema/schema.fbs.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt_perf.policy.encoding import FloatArray
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.tflite_ops import TFLITE_OPS, GraphTensor, constant

#: The model, and what its output is, in upstream's layout.
MODEL_FILE, OUTPUT_SPEC_FILE = "model.tflite", "output_spec.json"

# What TensorFlow's converter calls the output of a SavedModel.
_OUTPUT_NAME, _OUTPUT_PORT = "StatefulPartitionedCall", 0
_SIGNATURE = "action"
_IDENTIFIER = b"TFL3"
_SCHEMA_VERSION = 3
# TFLite's kernels want vectors to be aligned.
_ALIGNMENT = 16
# Operations whose options are written; the others have none.
_OPTIONS = {
    "ADD": "AddOptions",
    "ARG_MAX": "ArgMaxOptions",
    "CONCATENATION": "ConcatenationOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "MUL": "MulOptions",
    "SUB": "SubOptions",
}


def write_model(folder: Path, network: Network, weights: FloatArray) -> None:
    """Writes the files that development mode reads into an existing folder, in milliseconds.

    Equal policies give equal bytes.

    Args:
      weights: float32 [network.size].
    """
    (folder / MODEL_FILE).write_bytes(_model(network, weights))
    spec = {"name": _OUTPUT_NAME, "port": _OUTPUT_PORT, "type": "int64_t", "shape": [1]}
    outputs = [{"logging_name": network.problem.decision, "tensor_spec": spec}]
    (folder / OUTPUT_SPEC_FILE).write_text(json.dumps(outputs, indent=1) + "\n")


def _model(network: Network, weights: FloatArray) -> bytes:
    """The content of a file with the signature `action`: features in, the decision out."""
    inputs = {f.name: GraphTensor("", (), f.shape, f.dtype) for f in network.features}
    layers = [
        # TFLite wants [outputs, inputs].
        (constant(matrix.T, np.float32), constant(bias, np.float32))
        for matrix, bias in network.layers(weights)
    ]
    scores = network.masked_scores(layers, inputs, TFLITE_OPS)
    axis = constant(-1, np.int32)
    decision = GraphTensor("ARG_MAX", (scores, axis), (1,), np.int64, outputType=_code("int64"))
    writer = _Writer()
    # The compiler looks for these names, which TensorFlow's converter would give.
    numbers = {name: writer.add(one, f"action_{name}:0") for name, one in inputs.items()}
    result = writer.add(decision, f"{_OUTPUT_NAME}:{_OUTPUT_PORT}")
    return writer.content(numbers, (network.problem.decision, result))


def _schema() -> Any:
    """Classes of TFLite's schema. Imported late, because pool workers never need them."""
    from ai_edge_litert import schema_py_generated

    return schema_py_generated


def _code(dtype: str) -> int:
    """TFLite's number of an element type."""
    return int(getattr(_schema().TensorType, dtype.upper()))


class _Buffer:
    """Stands for the schema's BufferT, which does not align its data."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def Pack(self, builder: Any) -> int:  # noqa: N802
        """Writes the buffer; called by the schema's ModelT."""
        schema = _schema()
        if self.data:
            builder.StartVector(1, len(self.data), _ALIGNMENT)
            builder.head -= len(self.data)
            builder.Bytes[builder.head : builder.head + len(self.data)] = self.data
            vector = builder.EndVector()
        schema.BufferStart(builder)
        if self.data:
            schema.BufferAddData(builder, vector)
        return int(schema.BufferEnd(builder))


class _Writer:
    """Collects the parts of a file with one graph."""

    def __init__(self) -> None:
        self.schema = _schema()
        self.operators: list[Any] = []
        self.tensors: list[Any] = []
        # By convention, the first buffer is empty: that of tensors that are no constants.
        self.buffers = [_Buffer(b"")]
        self.codes: dict[str, int] = {}
        self.numbers: dict[GraphTensor, int] = {}
        # Numbers of constants and results by what they are equal in.
        self.shared: dict[tuple[Any, ...], int] = {}

    def add(self, tensor: GraphTensor, name: str | None = None) -> int:
        """Adds a tensor after all that it is computed from; returns its number in the file."""
        if tensor in self.numbers:
            return self.numbers[tensor]
        operands = [self.add(operand) for operand in tensor.operands]
        content = None if tensor.value is None else tensor.value.tobytes()
        key = (tensor.operation, *operands, tensor.shape, tensor.dtype, content)
        is_input = not tensor.operation and content is None
        if key in self.shared and not is_input:
            return self.shared[key]
        number = len(self.tensors)
        described = self.schema.TensorT()
        described.name = name
        described.shape = list(tensor.shape)
        described.type = _code(tensor.dtype.name)
        if content is not None:
            described.buffer = len(self.buffers)
            self.buffers.append(_Buffer(content))
        self.tensors.append(described)
        self.numbers[tensor] = number
        self.shared[key] = number
        if tensor.operation:
            self._add_operator(tensor, operands, number)
        return number

    def _add_operator(self, tensor: GraphTensor, operands: list[int], result: int) -> None:
        operator = self.schema.OperatorT()
        operator.opcodeIndex = self.codes.setdefault(tensor.operation, len(self.codes))
        operator.inputs, operator.outputs = operands, [result]
        if name := _OPTIONS.get(tensor.operation):
            operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, name)
            operator.builtinOptions = getattr(self.schema, f"{name}T")()
            vars(operator.builtinOptions).update(tensor.options)
        self.operators.append(operator)

    def content(self, inputs: Mapping[str, int], output: tuple[str, int]) -> bytes:
        """The file's content.

        Args:
          inputs: numbers of the graph's inputs, by their names in the signature.
          output: name and number of its output.
        """
        import flatbuffers

        graph = self.schema.SubGraphT()
        graph.name = _SIGNATURE
        graph.tensors, graph.operators = self.tensors, self.operators
        graph.inputs, graph.outputs = list(inputs.values()), [output[1]]
        signature = self.schema.SignatureDefT()
        signature.signatureKey = _SIGNATURE
        signature.inputs = [self._named(*one) for one in inputs.items()]
        signature.outputs = [self._named(*output)]
        model = self.schema.ModelT()
        model.version = _SCHEMA_VERSION
        model.description = "compiler-opt-perf"
        model.operatorCodes = [self._operator_code(name) for name in self.codes]
        model.subgraphs, model.signatureDefs = [graph], [signature]
        model.buffers = self.buffers
        builder = flatbuffers.Builder()
        builder.Finish(model.Pack(builder), _IDENTIFIER)
        return bytes(builder.Output())

    def _named(self, name: str, number: int) -> Any:
        named = self.schema.TensorMapT()
        named.name, named.tensorIndex = name, number
        return named

    def _operator_code(self, name: str) -> Any:
        code = self.schema.OperatorCodeT()
        code.builtinCode = getattr(self.schema.BuiltinOperator, name)
        # Readers of before 2020 know this field, which has room for 127 operations.
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = 1
        return code
