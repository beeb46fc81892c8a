// Our pickles, byte for byte and as our reader parses them.
#include "convert/torch/pickle_writer.h"

#include <gtest/gtest.h>

#include <limits>

#include "convert/torch/pickle.h"
#include "convert/torch/torch_writer.h"

namespace ms::convert {
namespace {

using namespace std::string_literals;

TEST(PickleWriterTest, SmallestFileMatchesHandmadeBytes) {
  const std::string pickle = make_pickle([](PickleWriter& p) {
    p.dict([&] {
      p.text("w");
      write_torch_tensor(p, {.dtype = SafetensorsDType::kF32, .storage_elements = 6, .shape = {2, 3}});
    });
  });
  EXPECT_EQ(pickle,
            "\x80\x02}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(("
            "X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
            "0X\3\0\0\0cpuK\6tQK\0K\2K\3\x86K\3K\1\x86\x89"
            "ccollections\nOrderedDict\n)RtRu."s);
}

TEST(PickleWriterTest, OnlyRepeatedTextsAreMemoized) {
  const std::string pickle = make_pickle([](PickleWriter& p) {
    p.list([&] {
      p.text("once");
      p.text("twice");
      p.symbol("torch", "float32");
      p.text("twice");
      p.symbol("torch", "bfloat16");
      p.symbol("torch", "float32");
    });
  });
  EXPECT_EQ(pickle,
            "\x80\x02](X\4\0\0\0onceX\5\0\0\0twiceq\0ctorch\nfloat32\nq\1"
            "h\0ctorch\nbfloat16\nh\1e."s);
}

TEST(PickleWriterTest, MoreThan256TextsAreMemoized) {
  const auto name = [](int i) { return "name " + std::to_string(i % 300); };
  const Pickle read(make_pickle([&](PickleWriter& p) {
                      p.tuple([&] {
                        for (int i = 0; i < 600; ++i) p.text(name(i));
                      });
                    }),
                    "test");
  const auto items = read.root().items();
  ASSERT_EQ(items.size(), 600u);
  for (int i = 0; i < 600; ++i) EXPECT_EQ(items[static_cast<size_t>(i)].text(), name(i));
  EXPECT_EQ(items[299].id(), items[599].id());
}

TEST(PickleWriterTest, EveryValueReadsBack) {
  constexpr int64_t kIntegers[] = {0,
                                   1,
                                   255,
                                   256,
                                   65535,
                                   65536,
                                   INT32_MAX,
                                   -1,
                                   -129,
                                   INT32_MIN,
                                   2147483648,
                                   -2147483649,
                                   549755813888,
                                   -549755813889,
                                   1099511627775,
                                   INT64_MAX,
                                   INT64_MIN,
                                   (int64_t{1} << 55) - 1,
                                   int64_t{1} << 55,
                                   -(int64_t{1} << 55)};
  const std::string bytes = make_pickle([&](PickleWriter& p) {
    p.dict([&] {
      p.text("integers");
      p.integers(kIntegers);
      p.text("nothing");
      p.none();
      p.text("flags");
      p.list([&] {
        p.boolean(true);
        p.boolean(false);
      });
      p.text("reals");
      p.tuple([&] {
        p.real(1e-5);
        p.real(-std::numeric_limits<double>::infinity());
      });
      p.text("empty");
      p.tuple([&] {
        p.tuple([] {});
        p.list([] {});
        p.dict([] {});
        p.integers({});
      });
      p.text("args");
      p.instance("argparse", "Namespace", [&] {
        p.dict([&] {
          p.text("bf16");
          p.boolean(true);
        });
      });
      p.text("ordered");
      p.call("collections", "OrderedDict", [] {});
      p.set_items([&] {
        p.text("Größe");
        p.integer(3);
      });
    });
  });
  const Pickle read(bytes, "test");
  EXPECT_EQ(read.end(), bytes.size());
  const auto integers = read.root().find("integers")->items();
  ASSERT_EQ(integers.size(), std::size(kIntegers));
  for (size_t i = 0; i < integers.size(); ++i) EXPECT_EQ(integers[i].integer(), kIntegers[i]);
  EXPECT_FALSE(read.root().find("nothing"));
  EXPECT_TRUE(read.root().find("flags")->items()[0].boolean());
  EXPECT_FALSE(read.root().find("flags")->items()[1].boolean());
  EXPECT_EQ(read.root().find("reals")->items()[0].real(), 1e-5);
  EXPECT_EQ(read.root().find("reals")->items()[1].real(), -std::numeric_limits<double>::infinity());
  for (const PickleValue empty : read.root().find("empty")->items()) EXPECT_TRUE(empty.items().empty());
  const auto args = read.root().find("args");
  EXPECT_TRUE(args->is_call_of("argparse", "Namespace"));
  EXPECT_TRUE(args->state()->find("bf16")->boolean());
  const auto ordered = read.root().find("ordered")->pairs();
  ASSERT_EQ(ordered.size(), 1u);
  EXPECT_EQ(ordered[0].first.text(), "Größe");
  EXPECT_EQ(ordered[0].second.integer(), 3);
}

}  // namespace
}  // namespace ms::convert
