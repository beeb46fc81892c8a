// Element types, sizes and fields in pickles.
#include "convert/torch/torch_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;

Pickle pickled(const std::string& opcodes) { return Pickle("\x80\x02" + opcodes + ".", "test"); }

TEST(TorchTypes, ElementTypeNamesAreParsed) {
  EXPECT_EQ(parse_torch_dtype(pickled("ctorch\nbfloat16\n").root()), SafetensorsDType::kBF16);
  EXPECT_EQ(parse_torch_storage(pickled("ctorch\nHalfStorage\n").root()), SafetensorsDType::kF16);
  EXPECT_EQ(parse_torch_dtype(pickled("ctorch\nHalfStorage\n").root()), std::nullopt);
  EXPECT_EQ(parse_torch_dtype(pickled("cnumpy\nfloat32\n").root()), std::nullopt);
  EXPECT_EQ(parse_torch_storage(pickled("ctorch\n\n").root()), std::nullopt);
}

TEST(TorchTypes, WrittenNamesMatchTorch) {
  EXPECT_EQ(torch_dtype_name(SafetensorsDType::kBF16), "bfloat16");
  EXPECT_EQ(torch_storage_name(SafetensorsDType::kF16), "HalfStorage");
  EXPECT_EQ(torch_storage_name(SafetensorsDType::kF8E4M3), "");
  EXPECT_EQ(test::code_of([] { torch_dtype_name(SafetensorsDType::kF4); }), core::ErrorCode::kInternal);
}

TEST(TorchTypes, BareAndWrappedSizesAreParsed) {
  EXPECT_THAT(parse_torch_size(pickled("K\x02K\x03\x86").root(), "x"), ElementsAre(2, 3));
  EXPECT_THAT(parse_torch_size(pickled("ctorch\nSize\nK\x02K\x03\x86\x85R").root(), "x"), ElementsAre(2, 3));
  EXPECT_EQ(test::thrown_by([&] { parse_torch_size(pickled("J\xff\xff\xff\xff\x85").root(), "x"); }).code,
            core::ErrorCode::kCorruptData);
}

TEST(TorchTypes, FieldsAreReadFromDictAndSlots) {
  const Pickle with_dict = pickled("cm\nThing\n)\x81}X\x01\0\0\0aK\x07sb"s);
  EXPECT_TRUE(is_instance_of(with_dict.root(), "Thing"));
  EXPECT_FALSE(is_instance_of(with_dict.root(), "Other"));
  EXPECT_EQ(fields_of(with_dict.root()).at("a").integer(), 7);
  const Pickle with_slots = pickled("cm\nThing\n)\x81N}X\x01\0\0\0aK\x07s\x86"s + "b");
  EXPECT_EQ(fields_of(with_slots.root()).at("a").integer(), 7);
}

}  // namespace
}  // namespace ms::convert
