"""Messages of Protobuf, as protoc gives their descriptors."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass

from rmqio.sql.formats.protobuf_schemas import messages_of

MONEY = """
name: "shop/money.proto" package: "shop" syntax: "proto3"
message_type { name: "Money"
  field { name: "units" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "currency" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING } }
"""
ORDER = """
name: "shop/order.proto" package: "shop" syntax: "proto3"
dependency: "shop/money.proto"
dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/wrappers.proto"
enum_type { name: "Status" value { name: "NEW" number: 0 } value { name: "PAID" number: 1 } }
message_type { name: "Order"
  field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "small" number: 2 label: LABEL_OPTIONAL type: TYPE_SINT32 }
  field { name: "u" number: 3 label: LABEL_OPTIONAL type: TYPE_FIXED32 }
  field { name: "big" number: 4 label: LABEL_OPTIONAL type: TYPE_UINT64 }
  field { name: "price" number: 5 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
  field { name: "ratio" number: 6 label: LABEL_OPTIONAL type: TYPE_FLOAT }
  field { name: "paid" number: 7 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "note" number: 8 label: LABEL_OPTIONAL type: TYPE_STRING proto3_optional: true oneof_index: 1 }
  field { name: "raw" number: 9 label: LABEL_OPTIONAL type: TYPE_BYTES }
  field { name: "status" number: 10 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".shop.Status" }
  field { name: "total" number: 11 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Money" }
  field { name: "tags" number: 12 label: LABEL_REPEATED type: TYPE_STRING }
  field { name: "lines" number: 13 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.Money" }
  field { name: "counts" number: 14 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.Order.CountsEntry" }
  field { name: "at" number: 15 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
  field { name: "limit" number: 16 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Int32Value" }
  field { name: "card" number: 17 label: LABEL_OPTIONAL type: TYPE_STRING oneof_index: 0 }
  field { name: "cash" number: 18 label: LABEL_OPTIONAL type: TYPE_INT32 oneof_index: 0 }
  nested_type { name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 } }
  nested_type { name: "Line" field { name: "n" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } }
  oneof_decl { name: "payment" } oneof_decl { name: "_note" } }
message_type { name: "Other" field { name: "x" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } }
"""
OLD = """
name: "old.proto"
message_type { name: "Old"
  field { name: "must" number: 1 label: LABEL_REQUIRED type: TYPE_INT32 }
  field { name: "may" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "7" } }
message_type { name: "Tree"
  field { name: "next" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".Tree" } }
message_type { name: "Empty" }
"""
NEST = """
name: "nest.proto" dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/wrappers.proto"
message_type { name: "Nest"
  field { name: "old" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".Inner" }
  field { name: "list" number: 2 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".Inner" }
  field { name: "map" number: 3 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".Nest.MapEntry" }
  field { name: "at" number: 4 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
  field { name: "one" number: 5 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Int32Value" }
  nested_type { name: "MapEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".Inner" } } }
message_type { name: "Inner"
  field { name: "may" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "7" }
  field { name: "in" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".Innermost" } }
message_type { name: "Innermost"
  field { name: "text" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING default_value: "x" } }
"""


def file(text: str) -> FileDescriptorProto:
    """Returns the descriptor of a file."""
    return text_format.Parse(text, FileDescriptorProto())


def of_file(text: str) -> str:
    """Returns the descriptor of a file in base 64, as a registry gives it."""
    return base64.b64encode(file(text).SerializeToString()).decode()


def descriptor(*texts: str) -> str:
    """Returns the FileDescriptorSet of files in base 64."""
    return base64.b64encode(FileDescriptorSet(file=map(file, texts)).SerializeToString()).decode()


def message(descriptor: str, name: str, **fields: Any) -> Any:
    """Returns a message, as a peer makes it."""
    return GetMessageClass(messages_of(descriptor)[name])(**fields)
