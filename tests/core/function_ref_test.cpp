#include "core/function_ref.h"

#include <gtest/gtest.h>

namespace ms::core {
namespace {

int twice(int x) { return 2 * x; }

int call(FunctionRef<int(int)> f) { return f(3); }

TEST(FunctionRef, CallsItsCallable) {
  int calls = 0;
  const auto counting = [&](int x) {
    ++calls;
    return x + 1;
  };
  EXPECT_EQ(call(counting), 4);
  EXPECT_EQ(call(counting), 4);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(call([](int x) { return -x; }), -3);
  EXPECT_EQ(call(&twice), 6);
}

// A copy refers to the callable, not to the reference it was copied from.
TEST(FunctionRef, CopiesReferToTheSameCallable) {
  int sum = 0;
  const auto adds = [&](int& x) { sum += x++; };
  const FunctionRef<void(int&)> first = adds;
  FunctionRef<void(int&)> second = first;
  int x = 5;
  first(x);
  second(x);
  EXPECT_EQ(sum, 11);
  EXPECT_EQ(x, 7);
}

}  // namespace
}  // namespace ms::core
