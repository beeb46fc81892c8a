// Clusters of positions that see the same keys, for adaptive context parallelism: positions of a cluster belong on the
// same rank. Source: MindSpeed's search (mindspeed/ops/csrc/algorithm/adaptive_cp/adaptive_cp.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "core/layout/coarse_mask.h"

namespace ms::layout {

// Orders of the cells of a mask, for 2 clusters, for 3, .. up to 8: cells of a cluster follow one another in ascending
// order, and clusters in the order of the means of their cells. Features of a cell are its row of the mask (which is
// made symmetric: whom it sees, or who sees it) on the ten largest eigenvectors of the covariance of the columns; these
// are found by subspace iteration, the clusters by k-means, both with fixed starts, so that all ranks find the same.
// Time: a second for 1024 cells at most; memory: two numbers for each of cells squared.
std::vector<std::vector<int64_t>> cluster_orders(const CoarseMask& mask);

// Of the features of a fixed mask, bit for bit: ranks for which it differs (of different builds, say) may find
// different clusters.
uint64_t cluster_fingerprint();

}  // namespace ms::layout
