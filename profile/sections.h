// The sections of the analysis, one row each: how it is computed, which tables show it, how it is written as JSON.
//
// A new section is a file in analysis/ with a result type, its tables and JSON in report/, and a row here. Results
// hold, per rank: Facts, Breakdown (absent without device events), PerStep, vectors of KernelType, KernelRow,
// OperatorRow, QueueLength, StreamIdle and TensorboardStep, LaunchStats (absent without pairs), IdleReasons, MemoryUse,
// RankSteps, a vector of AscendStep; for the job: KernelSpread, ClusterSteps, MatchedComms, CrossRank, Pipeline,
// PipelineActions, Pop and ExpertUse (where they exist), Imbalance, JobTime, Findings.
#pragma once

#include "profile/analysis/ascend_steps.h"
#include "profile/analysis/blame.h"
#include "profile/analysis/facts.h"
#include "profile/analysis/kernels.h"
#include "profile/analysis/memory.h"
#include "profile/analysis/operators.h"
#include "profile/analysis/pipeline.h"
#include "profile/analysis/pipeline_actions.h"
#include "profile/analysis/pop.h"
#include "profile/analysis/results.h"
#include "profile/analysis/steps.h"
#include "profile/analysis/tensorboard_steps.h"

namespace ms::profile::sections {

extern const Section kFacts, kBreakdown, kPerStep, kKernelTypes, kKernels, kOperators, kLaunches, kQueues, kIdle,
    kIdleCauses, kMemory, kSteps;
extern const Section kTensorboardSteps;  // only on request
extern const Section kCrossRank;         // input of the sections about ranks and links
extern const Section kKernelSpread;      // differences of kernels between ranks
extern const Section kRanks, kLinks, kExperts, kPipeline, kPop, kFindings;

// All sections in the order in which they are shown, except those on request.
const Sections& every();
// The sections that check_thresholds needs.
const Sections& for_check();

}  // namespace ms::profile::sections
