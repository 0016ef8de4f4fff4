// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/op_timer_cuda.h"

#include "base/units.h"
#include "tests/support/gpu_test.h"
#include "tests/support/record_sink.h"

namespace triptych {
namespace {

// The device's clock is placed on the host's with the time that a wait takes to return.
constexpr int64_t kClockErrorNs = 1000000;

class OpTimerCuda : public GpuTest {};

TEST_F(OpTimerCuda, OperationsLieInOrderWithinTheHostsTime) {
  const Stream stream = make_stream();
  const DeviceBuffer<std::byte> memory(64 << 20);
  OpTimer timer(stream.get());
  const auto set = [&](std::string_view name, size_t bytes) {
    timer.begin();
    TRIPTYCH_CUDA_CHECK(cudaMemsetAsync(memory.data(), 0, bytes, stream.get()));
    timer.end(ActivityKind::kMemset, name, static_cast<int64_t>(bytes));
  };
  for (int round = 0; round < 3; ++round) {  // events of the first are used again
    RecordSink sink;
    const int64_t before = now_ns();
    set("large", memory.size());
    set("small", 64);
    set("none", 1);
    TRIPTYCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    const int64_t after = now_ns();
    timer.report(sink);
    ASSERT_EQ(sink.records().size(), 3u);
    EXPECT_EQ(sink.records()[0].name, "large");
    EXPECT_EQ(sink.records()[0].bytes, 64 << 20);
    EXPECT_EQ(sink.records()[1].name, "small");
    EXPECT_EQ(sink.records()[1].kind, ActivityKind::kMemset);
    int64_t at = before - kClockErrorNs;
    for (const RecordSink::Record& record : sink.records()) {
      EXPECT_GE(record.start_ns, at) << record.name;
      EXPECT_GE(record.end_ns, record.start_ns) << record.name;
      at = record.end_ns;
    }
    EXPECT_LE(at, after + kClockErrorNs);
    const auto length = [&](size_t i) {
      return sink.records()[i].end_ns - sink.records()[i].start_ns;
    };
    EXPECT_GT(length(0), 5000) << "no device writes 64 MiB in 5 us";
    EXPECT_GT(length(0), length(1));
    RecordSink empty;
    timer.report(empty);
    EXPECT_TRUE(empty.records().empty()) << "reported once";
  }
}

}  // namespace
}  // namespace triptych
