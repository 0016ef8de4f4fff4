// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/classify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace triptych {
namespace {

using ::testing::HasSubstr;

struct Named {
  std::string_view name;
  TimeClass time_class;
};

void expect_kernels(std::initializer_list<Named> names) {
  for (const Named& named : names) {
    EXPECT_EQ(Classifier::built_in().classify(ActivityKind::kKernel, named.name), named.time_class)
        << named.name;
  }
}

TEST(BuiltInRules, NameTheOperationsOfTheCpuEngine) {
  expect_kernels({{"gemv_q4_1", TimeClass::kGemm},
                  {"gemm_f16", TimeClass::kGemm},
                  {"gate_up_swiglu_q4_1", TimeClass::kGemm},
                  {"gemv_q4_1+gemv_q8_0", TimeClass::kGemm},  // Q, K and V in one operation
                  {"linear", TimeClass::kGemm},
                  {"attention_decode", TimeClass::kAttention},
                  {"attention_prefill", TimeClass::kAttention},
                  {"rms_norm", TimeClass::kNorm},
                  {"rms_norm_residual", TimeClass::kNorm},
                  {"rope", TimeClass::kElementwise},
                  {"rope_kv_append", TimeClass::kElementwise},
                  {"rope_kv_append_bias_qk_norm", TimeClass::kElementwise},
                  {"add_bias", TimeClass::kElementwise},
                  {"qk_norm", TimeClass::kNorm},
                  {"kv_append", TimeClass::kElementwise},
                  {"swiglu", TimeClass::kElementwise},
                  {"add", TimeClass::kElementwise},
                  {"embed", TimeClass::kElementwise},
                  {"argmax", TimeClass::kSampling},
                  {"sample_top_p", TimeClass::kSampling},
                  {"quantize_activations", TimeClass::kQuantize}});
}

TEST(BuiltInRules, NameTheOperatorsOfPyTorchOnACpu) {
  expect_kernels({{"aten::linear", TimeClass::kGemm},
                  {"aten::scaled_dot_product_attention", TimeClass::kAttention},
                  {"aten::softmax", TimeClass::kAttention},
                  {"aten::layer_norm", TimeClass::kNorm},
                  {"aten::argmax", TimeClass::kSampling},
                  {"aten::rsqrt", TimeClass::kElementwise},
                  {"aten::index_select", TimeClass::kElementwise},
                  {"aten::cat", TimeClass::kElementwise},
                  {"aten::to", TimeClass::kElementwise},
                  {"aten::view", TimeClass::kLaunchGap},
                  {"aten::t", TimeClass::kLaunchGap},
                  {"aten::empty_strided", TimeClass::kLaunchGap},
                  {"aten::scan", TimeClass::kUnclassified},
                  {"aten::linear_backward", TimeClass::kUnclassified}});
}

TEST(BuiltInRules, KindDecidesBeforeTheName) {
  const Classifier& rules = Classifier::built_in();
  EXPECT_EQ(rules.classify(ActivityKind::kMemcpy, "kv_concat"), TimeClass::kMemcpy);
  EXPECT_EQ(rules.classify(ActivityKind::kMemcpy, "logits_to_host"), TimeClass::kMemcpy);
  EXPECT_EQ(rules.classify(ActivityKind::kMemset, "Memset (Device)"), TimeClass::kMemcpy);
  EXPECT_EQ(rules.classify(ActivityKind::kSync, "thread_pool_wait"), TimeClass::kSync);
  EXPECT_EQ(rules.classify(ActivityKind::kCollective, "all_reduce"), TimeClass::kCommTransfer);
  EXPECT_EQ(rules.classify(ActivityKind::kCollective, "all_gather"), TimeClass::kCommTransfer);
  EXPECT_EQ(rules.classify(ActivityKind::kSync, "all_reduce_wait"), TimeClass::kCommWait);
  EXPECT_EQ(rules.classify(ActivityKind::kSync, "all_gather_wait"), TimeClass::kCommWait);
  EXPECT_EQ(rules.classify(ActivityKind::kSync, "all_reduce_sync"), TimeClass::kSync);
}

TEST(BuiltInRules, OnlyTheCpuEnginesAllocationsAreDeviceTimeAmongRuntimeRecords) {
  const Classifier& rules = Classifier::built_in();
  EXPECT_EQ(rules.classify(ActivityKind::kRuntime, "alloc"), TimeClass::kLaunchGap);
  EXPECT_EQ(rules.classify(ActivityKind::kRuntime, "free"), TimeClass::kLaunchGap);
  EXPECT_EQ(rules.classify(ActivityKind::kRuntime, "cudaMalloc"), std::nullopt);
  EXPECT_EQ(rules.classify(ActivityKind::kRuntime, "cudaLaunchKernel"), std::nullopt);
}

TEST(BuiltInRules, FindCollectivesThatDoNotSayNccl) {
  expect_kernels(
      {{"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        TimeClass::kCommTransfer},
       {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, ...)",
        TimeClass::kCommTransfer},
       {"void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(...)",
        TimeClass::kCommTransfer},
       {"two_shot_all_reduce_kernel_inplace", TimeClass::kCommTransfer},
       {"flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
        "AllReduceFusionPattern::kARResidualRMSNormFP8Quant, __nv_bfloat16>",
        TimeClass::kCommTransfer},
       {"quickreduce::allreduce_prototype_twoshot<...>", TimeClass::kCommTransfer},
       {"void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(...)", TimeClass::kCommTransfer},
       {"nvshmemx_barrier_all_kernel", TimeClass::kCommTransfer},
       {"mscclpp::allreduceAllToAll", TimeClass::kCommTransfer}});
}

TEST(BuiltInRules, KeepReductionsOfComputeOutOfCommunication) {
  expect_kernels({{"void cublasLt::splitKreduce_kernel<32, 16, int, float>(...)", TimeClass::kGemm},
                  {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
                   "at::native::MeanOps<float, float>>>(...)",
                   TimeClass::kElementwise},
                  {"void cunn_SoftMaxForwardReduce<4, float, float>(...)", TimeClass::kAttention},
                  {"void at::native::vectorized_gather_kernel<16, long>(char*, char*, ...)",
                   TimeClass::kElementwise}});
}

TEST(BuiltInRules, ReadTheOperationAndNotItsArgumentTypes) {
  expect_kernels(
      {{"void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
        "cutlass::bfloat16_t>>(...)",
        TimeClass::kAttention},
       {"void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<...>>>(...)",
        TimeClass::kAttention},
       {"void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char>(...)",
        TimeClass::kElementwise},
       {"void moe::dev::finalize::finalizeKernelVecLoad<cutlass::bfloat16_t>(...)",
        TimeClass::kElementwise},
       {"void tensorrt_llm::kernels::quantize_with_block_size<__nv_bfloat16, 32, true>(int, "
        "flashinfer::QuantizationSFLayout)",
        TimeClass::kQuantize},
       {"void fbgemm_gpu::permute_2D_data_kernel<false, int>(...)", TimeClass::kUnclassified},
       {"triton_poi_fused__scaled_dot_product_flash_attention_clone_3", TimeClass::kElementwise},
       {"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", TimeClass::kNorm},
       {"triton_tem_fused_mm_4", TimeClass::kGemm}});
}

TEST(BuiltInRules, NameTheKernelsOfPublicStacks) {
  expect_kernels(
      {{"ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn", TimeClass::kGemm},
       {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", TimeClass::kGemm},
       {"void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm>(...)", TimeClass::kGemm},
       {"nvjet_tst_192x8_64x8_4x1_v_bz_TNT", TimeClass::kGemm},
       {"void gemv2T_kernel_val<int, int, __half, __half>(...)", TimeClass::kGemm},
       {"void marlin::Marlin<half, 256, 1, 8, 8, 4, 8>(int4 const*, ...)", TimeClass::kGemm},
       {"fused_moe_kernel", TimeClass::kGemm},
       {"void flashinfer::BatchDecodeWithPagedKVCacheKernel<...>(...)", TimeClass::kAttention},
       {"void vllm::paged_attention_v2_kernel<...>(...)", TimeClass::kAttention},
       {"kernel_unified_attention_2d", TimeClass::kAttention},
       {"fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausal", TimeClass::kAttention},
       {"void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(...)", TimeClass::kNorm},
       {"void flashinfer::norm::RMSNormKernel<8, __half>(...)", TimeClass::kNorm},
       {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(...)",
        TimeClass::kNorm},
       {"void vllm::rotary_embedding_kernel<c10::BFloat16, true>(...)", TimeClass::kElementwise},
       {"void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel>(...)",
        TimeClass::kElementwise},
       {"void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(...)",
        TimeClass::kElementwise},
       {"void flashinfer::sampling::TopKTopPSamplingFromProbKernel<...>(...)",
        TimeClass::kSampling},
       {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
        "at::native::ArgMaxOps<float>>>(...)",
        TimeClass::kSampling},
       {"void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(...)",
        TimeClass::kSampling},
       // What PyTorch calls for attention, for masks and for positions.
       {"void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, "
        "4>>(...)",
        TimeClass::kAttention},
       {"void pytorch_flash::flash_fwd_splitkv_combine_kernel<...>(...)", TimeClass::kAttention},
       {"fmha_cutlassF_f16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<...>)",
        TimeClass::kAttention},
       {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128",
        TimeClass::kAttention},
       {"void cudnn::fusion::lean_reduction_kernel<false, false, false>(void*, float*, ...)",
        TimeClass::kAttention},
       {"nvjet_hsh_64x8_64x16_4x1_v_bz_TNN", TimeClass::kGemm},
       {"void gemvx::kernel<int, int, __half, __half, __half, float, false>(...)",
        TimeClass::kGemm},
       {"void at::native::tensor_kernel_scan_innermost_dim<long, std::plus<long>>(...)",
        TimeClass::kElementwise},
       {"void at::native::triu_tril_kernel<bool, int, true, 8, false>(...)",
        TimeClass::kElementwise},
       {"void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<...>(...)",
        TimeClass::kElementwise},
       {"void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16>(...)", TimeClass::kQuantize}});
}

TEST(BuiltInRules, LeaveWhatTheyDoNotKnowUnclassified) {
  expect_kernels({{"triton__0d1d2d", TimeClass::kUnclassified},
                  {"my_kernel", TimeClass::kUnclassified},
                  {"", TimeClass::kUnclassified},
                  {"gemm \xff", TimeClass::kUnclassified}});  // not UTF-8
}

TEST(ClassifierParse, TakesTheFirstRuleThatMatches) {
  const Result<Classifier> rules = Classifier::parse(
      "- {class: norm, kind: kernel, name: 'a'}\n"
      "- {class: gemm, name: '^ab$'}\n"
      "- {class: sync, kind: runtime}\n",
      "mine.yaml");
  ASSERT_TRUE(rules) << rules.error().to_string();
  EXPECT_EQ(rules->classify(ActivityKind::kKernel, "ab"), TimeClass::kNorm);
  EXPECT_EQ(rules->classify(ActivityKind::kCollective, "ab"), TimeClass::kGemm);
  EXPECT_EQ(rules->classify(ActivityKind::kRuntime, "x"), TimeClass::kSync);
  EXPECT_EQ(rules->classify(ActivityKind::kMemcpy, "x"), TimeClass::kUnclassified);
}

TEST(ClassifierParse, NoRulesIsLegal) {
  const Result<Classifier> rules = Classifier::parse("[]", "mine.yaml");
  ASSERT_TRUE(rules);
  EXPECT_EQ(rules->classify(ActivityKind::kKernel, "gemm"), TimeClass::kUnclassified);
  EXPECT_EQ(rules->classify(ActivityKind::kRuntime, "alloc"), std::nullopt);
}

struct BadRules {
  std::string_view yaml;
  std::string_view where;
  std::string_view message;
};

TEST(ClassifierParse, SaysWhereAndWhatWasExpected) {
  const std::vector<BadRules> cases = {
      {"- {class: gem, name: 'x'}", "r.yaml:1:11", "unknown class 'gem', did you mean 'gemm'?"},
      {"- {class: gem, name: 'x'}", "r.yaml:1:11", "expected one of gemm, attention, norm"},
      {"- {class: gemm, name: 'x'}\n- {class: norm, kind: kernle}", "r.yaml:2:23",
       "unknown kind 'kernle', did you mean 'kernel'?"},
      {"- {class: gemm, nam: 'x'}", "r.yaml:1:17", "unknown key 'nam', did you mean 'name'?"},
      {"- {class: gemm, class: norm, name: x}", "r.yaml:1:17", "'class' stands twice"},
      {"- {name: 'x'}", "r.yaml:1:3", "needs a class"},
      {"- {class: gemm}", "r.yaml:1:3", "needs a kind or a name"},
      {"- {class: gemm, name: 'a(b'}", "r.yaml:1:23", "bad regular expression at offset"},
      {"- {class: gemm, name: [a]}", "r.yaml:1:23", "expected a regular expression"},
      {"- {class: [gemm], name: a}", "r.yaml:1:11", "expected one word for class"},
      {"- gemm", "r.yaml:1:3", "expected a rule such as"},
      {"class: gemm", "r.yaml:1:1", "expected a list of rules"},
      {"", "r.yaml", "expected a list of rules"},
      {"- {class: gemm", "r.yaml:1:", "end of map"}};
  for (const BadRules& bad : cases) {
    const Result<Classifier> rules = Classifier::parse(bad.yaml, "r.yaml");
    ASSERT_FALSE(rules) << bad.yaml;
    EXPECT_EQ(rules.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(rules.error().where, ::testing::StartsWith(std::string(bad.where))) << bad.yaml;
    EXPECT_THAT(rules.error().message, HasSubstr(std::string(bad.message))) << bad.yaml;
  }
}

}  // namespace
}  // namespace triptych
