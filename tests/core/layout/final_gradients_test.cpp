#include "core/layout/final_gradients.h"

#include <gtest/gtest.h>

namespace ms::layout {
namespace {

using Kind = ScheduleAction::Kind;

// Nothing adds to a chunk's gradients after the action that leaves them final, and something does in it.
TEST(FinalGradients, ComeWithTheLastActionOfEachChunk) {
  for (const ScheduleMethod method :
       {ScheduleMethod::k1F1B, ScheduleMethod::kZbH1, ScheduleMethod::kZbV, ScheduleMethod::kDualPipeV}) {
    for (int stage = 0; stage < 4; ++stage) {
      ScheduleSettings settings;
      settings.method = method;
      const int chunks = runs_in_a_v(settings.method) ? 2 : 1;
      const std::vector<ScheduleAction> actions = schedule_training(settings, stage, 4, chunks, 8);
      const std::vector<FinalGradients> leaves = final_gradients(actions, chunks);
      ASSERT_EQ(leaves.size(), actions.size());
      for (int chunk = 0; chunk < chunks; ++chunk) {
        int outputs = 0, layers = 0;
        for (size_t i = 0; i < actions.size(); ++i) {
          if (actions[i].chunk != chunk) continue;
          const Kind kind = actions[i].kind;
          const bool of_output = kind == Kind::kBackward || kind == Kind::kBackwardInput;
          const bool of_layers = of_output || kind == Kind::kBackwardWeight;
          EXPECT_FALSE(of_output && outputs > 0) << static_cast<int>(method) << ": added after they were final";
          EXPECT_FALSE(of_layers && layers > 0) << static_cast<int>(method) << ": added after they were final";
          EXPECT_FALSE(leaves[i].output && !of_output);
          EXPECT_FALSE(leaves[i].layers && !of_layers);
          outputs += leaves[i].output ? 1 : 0;
          layers += leaves[i].layers ? 1 : 0;
        }
        EXPECT_EQ(outputs, 1) << static_cast<int>(method) << " stage " << stage;
        EXPECT_EQ(layers, 1) << static_cast<int>(method) << " stage " << stage;
      }
    }
  }
}

}  // namespace
}  // namespace ms::layout
