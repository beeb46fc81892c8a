#include "core/layout/mask_clusters.h"

#include <Eigen/Dense>
#include <algorithm>
#include <limits>
#include <numeric>

#include "core/rng.h"
#include "kernels/checksum.h"

namespace ms::layout {
namespace {

using Matrix = Eigen::MatrixXf;

constexpr Eigen::Index kEigenvectors = 10, kMaxClusters = 8;
constexpr int kSubspaceIterations = 12, kMeansIterations = 100;

Matrix orthonormal(const Matrix& x) {
  const Eigen::HouseholderQR<Matrix> qr(x);
  return qr.householderQ() * Matrix::Identity(x.rows(), x.cols());
}

// Rows of the mask, made symmetric, on the largest eigenvectors of the covariance of its columns.
Matrix features_of(const CoarseMask& mask) {
  const Eigen::Index cells = mask.cells();
  Matrix rows(cells, cells);
  for (Eigen::Index i = 0; i < cells; ++i)
    for (Eigen::Index j = 0; j <= i; ++j) rows(i, j) = rows(j, i) = mask.sees(i, j) || mask.sees(j, i) ? 1.F : 0.F;
  const Eigen::RowVectorXf mean = rows.colwise().mean();
  const core::Rng rng(1, "subspace of a mask");
  Matrix subspace(cells, std::min(cells, kEigenvectors));
  for (Eigen::Index i = 0; i < subspace.size(); ++i) subspace(i) = rng.normal(static_cast<uint64_t>(i));
  subspace = orthonormal(subspace);
  for (int i = 0; i < kSubspaceIterations; ++i) {
    // With C the rows less their mean: C^T C x, without C.
    Matrix centred = rows * subspace;
    centred.rowwise() -= (mean * subspace).eval();
    Matrix product = rows * centred;  // rows are symmetric
    product -= mean.transpose() * centred.colwise().sum();
    subspace = orthonormal(product);
  }
  return rows * subspace;
}

// Of each row the number of its cluster.
class Means {
 public:
  // Centres: the first row, and then the farthest one from those that there are.
  Means(const Matrix& rows, Eigen::Index clusters) : rows_(rows), centres_(clusters, rows.cols()) {
    Eigen::VectorXf distances = Eigen::VectorXf::Constant(rows.rows(), std::numeric_limits<float>::max());
    Eigen::Index next = 0;
    for (Eigen::Index cluster = 0; cluster < clusters; ++cluster) {
      centres_.row(cluster) = rows.row(next);
      distances = distances.cwiseMin((rows.rowwise() - rows.row(next)).rowwise().squaredNorm());
      distances.maxCoeff(&next);
    }
    clusters_.assign(static_cast<size_t>(rows.rows()), -1);
    for (int i = 0; i < kMeansIterations && assign(); ++i) move();
  }
  const std::vector<Eigen::Index>& clusters() const { return clusters_; }

 private:
  bool assign() {  // whether one has changed
    bool changed = false;
    for (Eigen::Index row = 0; row < rows_.rows(); ++row) {
      Eigen::Index nearest = 0;
      (centres_.rowwise() - rows_.row(row)).rowwise().squaredNorm().minCoeff(&nearest);
      Eigen::Index& own = clusters_[static_cast<size_t>(row)];
      changed |= own != nearest;
      own = nearest;
    }
    return changed;
  }
  void move() {
    Matrix sums = Matrix::Zero(centres_.rows(), centres_.cols());
    Eigen::VectorXf counts = Eigen::VectorXf::Zero(centres_.rows());
    for (Eigen::Index row = 0; row < rows_.rows(); ++row) {
      const Eigen::Index cluster = clusters_[static_cast<size_t>(row)];
      sums.row(cluster) += rows_.row(row);
      counts(cluster) += 1;
    }
    for (Eigen::Index cluster = 0; cluster < centres_.rows(); ++cluster)
      if (counts(cluster) > 0) centres_.row(cluster) = sums.row(cluster) / counts(cluster);
  }

  const Matrix& rows_;
  Matrix centres_;
  std::vector<Eigen::Index> clusters_;
};

std::vector<int64_t> order_of(const std::vector<Eigen::Index>& clusters, Eigen::Index number) {
  const auto cells = static_cast<int64_t>(clusters.size());
  std::vector<int64_t> sums(static_cast<size_t>(number)), counts(static_cast<size_t>(number));
  for (int64_t cell = 0; cell < cells; ++cell) {
    const auto cluster = static_cast<size_t>(clusters[static_cast<size_t>(cell)]);
    sums[cluster] += cell;
    ++counts[cluster];
  }
  const auto goes_before = [&](int64_t a, int64_t b) {
    const auto of_a = static_cast<size_t>(clusters[static_cast<size_t>(a)]);
    const auto of_b = static_cast<size_t>(clusters[static_cast<size_t>(b)]);
    const int64_t left = sums[of_a] * counts[of_b], right = sums[of_b] * counts[of_a];
    return left != right ? left < right : of_a < of_b;
  };
  std::vector<int64_t> order(static_cast<size_t>(cells));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, goes_before);
  return order;
}

}  // namespace

std::vector<std::vector<int64_t>> cluster_orders(const CoarseMask& mask) {
  const Matrix features = features_of(mask);
  std::vector<std::vector<int64_t>> orders;
  for (Eigen::Index clusters = 2; clusters <= std::min<Eigen::Index>(kMaxClusters, mask.cells()); ++clusters)
    orders.push_back(order_of(Means(features, clusters).clusters(), clusters));
  return orders;
}

uint64_t cluster_fingerprint() {
  constexpr int64_t kCells = 128;
  const std::vector<int64_t> ends = {3, 20, 50, 51, 90, kCells};
  const Matrix features = features_of(CoarseMask(kCells, kCells, ends));
  return kernels::xxh3(features.data(), static_cast<size_t>(features.size()) * sizeof(float));
}

}  // namespace ms::layout
