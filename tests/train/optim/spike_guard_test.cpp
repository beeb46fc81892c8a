#include "train/optim/spike_guard.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::train {
namespace {

TEST(SpikeGuard, ComparesWithTheMeanOfAFullWindow) {
  TrainingConfig config;
  config.spike_skip_factor = 3;
  config.spike_skip_window = 4;
  SpikeGuard guard(config);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(guard.is_spike(1e6, 1e6));  // the window is not full
    guard.accept(2, 1);
  }
  guard.accept(2, 5);
  EXPECT_FALSE(guard.is_spike(6, 6));  // the means are 2 and 2
  EXPECT_TRUE(guard.is_spike(6.1, 1));
  EXPECT_TRUE(guard.is_spike(1, 6.1));
  SpikeGuard restored(config);
  restored.restore(guard.state());
  EXPECT_TRUE(restored.is_spike(6.1, 1));
  for (int i = 0; i < 4; ++i) restored.accept(4, 4);  // the old values have left the window
  EXPECT_FALSE(restored.is_spike(12, 12));
  EXPECT_FALSE(SpikeGuard(TrainingConfig{}).is_spike(1e30, 1e30));
}

TEST(SpikeGuard, FullWindowOfSpikesIsReported) {
  TrainingConfig config;
  config.spike_skip_factor = 3;
  config.spike_skip_window = 3;
  SpikeGuard guard(config);
  EXPECT_FALSE(guard.skip());
  EXPECT_FALSE(guard.skip());
  guard.accept(1, 1);  // not in a row
  EXPECT_FALSE(guard.skip());
  EXPECT_FALSE(guard.skip());
  SpikeGuard restored(config);
  restored.restore(guard.state());
  EXPECT_EQ(restored.state(), guard.state());
  EXPECT_TRUE(restored.skip());
  for (const char* bad : {R"({"steps": []})", R"({"steps": [], "spikes_in_a_row": -1})",
                          R"({"steps": [[1]], "spikes_in_a_row": 0})", R"({"spikes_in_a_row": 0})"}) {
    EXPECT_EQ(test::code_of([&] { restored.restore(nlohmann::json::parse(bad)); }), core::ErrorCode::kCorruptData)
        << bad;
  }
}

}  // namespace
}  // namespace ms::train
