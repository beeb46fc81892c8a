// The sections of the analysis, one row each: how it is computed, which tables show it, how it is written as JSON.
//
// A new section is a file in analysis/ that computes a type of its own, its tables and JSON in report/, and a row here.
// Results hold, of each rank: Facts, Breakdown (none without device events), PerStep, vectors of KernelType, KernelRow,
// OperatorRow, QueueLength, StreamIdle and TensorboardStep, LaunchStats (none without pairs), IdleReasons, MemoryUse,
// RankSteps, a vector of AscendStep; of the job: KernelSpread, ClusterSteps, MatchedComms, CrossRank, Pipeline and Pop
// (where there are), Imbalance, JobTime, Findings.
#pragma once

#include "profile/analysis/ascend_steps.h"
#include "profile/analysis/blame.h"
#include "profile/analysis/facts.h"
#include "profile/analysis/kernels.h"
#include "profile/analysis/memory.h"
#include "profile/analysis/operators.h"
#include "profile/analysis/pipeline.h"
#include "profile/analysis/pop.h"
#include "profile/analysis/results.h"
#include "profile/analysis/steps.h"
#include "profile/analysis/tensorboard_steps.h"

namespace ms::profile::sections {

extern const Section kFacts, kBreakdown, kPerStep, kKernelTypes, kKernels, kOperators, kLaunches, kQueues, kIdle,
    kIdleCauses, kMemory, kSteps;
extern const Section kTensorboardSteps;  // on demand only
extern const Section kCrossRank;         // what ranks and links are computed from
extern const Section kKernelSpread;      // how kernels differ between ranks
extern const Section kRanks, kLinks, kPipeline, kPop, kFindings;

// In the order in which they are shown, without those on demand.
const Sections& every();
// What check_thresholds reads.
const Sections& for_check();

}  // namespace ms::profile::sections
