// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/ops.h"

namespace triptych::cpu {
namespace {

const Half* token(const Half* const* pages, const KvView& kv, const AttentionArgs& args, int64_t t,
                  int64_t kv_head) {
  return pages[t / kv.page_size] + (t % kv.page_size * args.num_kv_heads + kv_head) * args.head_dim;
}

void attend_one(const AttentionArgs& args, const AttentionSequence& seq, int64_t query,
                int64_t head) {
  const int64_t kv_head = head / (args.num_q_heads / args.num_kv_heads);
  const int64_t offset = (query * args.num_q_heads + head) * args.head_dim;
  const int64_t position = seq.first_position + query;
  const int64_t first = args.window > 0 ? std::max<int64_t>(0, position - args.window + 1) : 0;
  std::vector<double> weight(static_cast<size_t>(position + 1 - first));
  double max = -std::numeric_limits<double>::infinity();
  for (size_t t = 0; t < weight.size(); ++t) {
    const Half* k = token(seq.kv.k_pages, seq.kv, args, first + static_cast<int64_t>(t), kv_head);
    double dot = 0.0;
    for (int64_t d = 0; d < args.head_dim; ++d) {
      dot += static_cast<double>(seq.q[offset + d]) * half_to_float(k[d]);
    }
    weight[t] = dot * args.scale;
    max = std::max(max, weight[t]);
  }
  double sum = 0.0;
  for (double& w : weight) sum += w = std::exp(w - max);
  for (int64_t d = 0; d < args.head_dim; ++d) {
    double out = 0.0;
    for (size_t t = 0; t < weight.size(); ++t) {
      const Half* v = token(seq.kv.v_pages, seq.kv, args, first + static_cast<int64_t>(t), kv_head);
      out += weight[t] * half_to_float(v[d]);
    }
    seq.out[offset + d] = static_cast<float>(out / sum);
  }
}

}  // namespace

void attention_ref(const AttentionArgs& args) {
  for (const AttentionSequence& seq : args.sequences) {
    for (int64_t query = 0; query < seq.num_queries; ++query) {
      for (int64_t head = 0; head < args.num_q_heads; ++head) attend_one(args, seq, query, head);
    }
  }
}

}  // namespace triptych::cpu
