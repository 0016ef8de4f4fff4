// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/step_buffers_cuda.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

constexpr StepLimits kLimits{.rows = 13, .sequences = 5, .pages_per_sequence = 3, .old_parts = 4};

template <class T>
std::vector<T> from_device(const T* memory, int64_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(host.data(), memory, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

/// Every array gets numbers of its own, so that one that reaches into the next shows.
void fill(const StepBuffers::View& host, int32_t first) {
  const auto write = [&](int32_t* array, int64_t count) {
    for (int64_t i = 0; i < count; ++i) array[i] = first++;
  };
  write(host.tokens, kLimits.rows);
  write(host.positions, kLimits.rows);
  write(host.row_sequences, kLimits.rows);
  write(host.kv_lengths, kLimits.sequences);
  write(host.row_starts, kLimits.sequences + 1);
  write(host.kv_starts, kLimits.sequences);
  write(host.old_lengths, kLimits.sequences);
  write(host.sampled_rows, kLimits.sequences);
  write(host.sampled_slots, kLimits.sequences);
  write(host.tokens_at, 1);
  for (int64_t i = 0; i < kLimits.sequences; ++i) host.sample_keys[i] = {first++, first++};
  for (int64_t i = 0; i < kLimits.old_parts * kLimits.sequences; ++i) {
    host.old_parts[i] = reinterpret_cast<const void*>(static_cast<intptr_t>(first++));
  }
  write(host.page_table, kLimits.sequences * kLimits.pages_per_sequence);
}

void expect_filled(const StepBuffers::View& device, int32_t first) {
  const auto expect = [&](const int32_t* array, int64_t count) {
    for (const int32_t value : from_device(array, count)) ASSERT_EQ(value, first++);
  };
  expect(device.tokens, kLimits.rows);
  expect(device.positions, kLimits.rows);
  expect(device.row_sequences, kLimits.rows);
  expect(device.kv_lengths, kLimits.sequences);
  expect(device.row_starts, kLimits.sequences + 1);
  expect(device.kv_starts, kLimits.sequences);
  expect(device.old_lengths, kLimits.sequences);
  expect(device.sampled_rows, kLimits.sequences);
  expect(device.sampled_slots, kLimits.sequences);
  expect(device.tokens_at, 1);
  for (const SampleKey& key : from_device(device.sample_keys, kLimits.sequences)) {
    ASSERT_EQ(key.request, first++);
    ASSERT_EQ(key.position, first++);
  }
  for (const void* part : from_device(device.old_parts, kLimits.old_parts * kLimits.sequences)) {
    ASSERT_EQ(reinterpret_cast<intptr_t>(part), first++);
  }
  expect(device.page_table, kLimits.sequences * kLimits.pages_per_sequence);
}

class StepBuffersCuda : public GpuTest {};

void spin(void* until) {
  while (!static_cast<std::atomic<bool>*>(until)->load()) std::this_thread::yield();
}

TEST_F(StepBuffersCuda, EveryArrayArrivesAtTwoAddressesInTurn) {
  StepBuffers buffers(kLimits);
  const Stream stream = make_stream();
  EXPECT_EQ(buffers.max_sequences(), kLimits.sequences);
  std::array<const int32_t*, StepBuffers::kCopies> tokens{};
  for (size_t copy : {1, 0}) {
    buffers.select(copy);
    tokens[copy] = buffers.device().tokens;
  }
  EXPECT_NE(tokens[0], tokens[1]);
  for (int32_t step = 0; step < 4; ++step) {
    fill(buffers.begin(), 1000 * step);
    buffers.commit(kLimits.sequences, stream.get());
    TRIPTYCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    expect_filled(buffers.device(), 1000 * step);
    EXPECT_EQ(buffers.device().tokens, tokens[buffers.current()]);
    EXPECT_EQ(buffers.current(), static_cast<size_t>(1 - step % 2));
  }
}

TEST_F(StepBuffersCuda, AStepIsPreparedWhileTheOneBeforeItIsOnItsWay) {
  StepBuffers buffers(kLimits);
  const Stream stream = make_stream();
  const StepBuffers::View& first = buffers.begin();
  fill(first, 0);
  const int32_t* const first_tokens = first.tokens;
  const StepBuffers::View first_device = buffers.device();
  buffers.commit(kLimits.sequences, stream.get());
  const StepBuffers::View& second = buffers.begin();
  EXPECT_NE(second.tokens, first_tokens);
  const StepBuffers::View second_device = buffers.device();
  fill(second, 5000);
  buffers.commit(kLimits.sequences, stream.get());
  EXPECT_EQ(buffers.begin().tokens, first_tokens) << "two copies, in turn";
  TRIPTYCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  expect_filled(first_device, 0);
  expect_filled(second_device, 5000);
}

TEST_F(StepBuffersCuda, AStepIsCopiedWhileTheOneBeforeItRunsAndNotTheOneBeforeThat) {
  StepBuffers buffers(kLimits);
  const Stream stream = make_stream();
  std::atomic<bool> ended = false;
  fill(buffers.begin(), 0);
  const StepBuffers::View device = buffers.device();
  buffers.commit(kLimits.sequences, stream.get());
  TRIPTYCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  TRIPTYCH_CUDA_CHECK(cudaLaunchHostFunc(stream.get(), spin, &ended));  // the first step's kernels
  for (const int32_t step : {1, 2}) {
    fill(buffers.begin(), 1000 * step);
    buffers.commit(kLimits.sequences, stream.get());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // a copy takes microseconds
  expect_filled(device, 0);
  ended = true;
  TRIPTYCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  expect_filled(device, 2000);
}

TEST_F(StepBuffersCuda, OfThePageTableOnlyTheStepsSequencesAreCopied) {
  StepBuffers buffers(kLimits);
  const Stream stream = make_stream();
  for (const int32_t value : {7, 7, 9}) {  // the last on top of the first
    const StepBuffers::View& host = buffers.begin();
    fill(host, 0);
    std::fill_n(host.page_table, kLimits.sequences * kLimits.pages_per_sequence, value);
    buffers.commit(value == 7 ? kLimits.sequences : 2, stream.get());
  }
  TRIPTYCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  const std::vector<int32_t> table =
      from_device(buffers.device().page_table, kLimits.sequences * kLimits.pages_per_sequence);
  for (int64_t i = 0; i < std::ssize(table); ++i) {
    EXPECT_EQ(table[static_cast<size_t>(i)], i < 2 * kLimits.pages_per_sequence ? 9 : 7);
  }
}

}  // namespace
}  // namespace triptych
