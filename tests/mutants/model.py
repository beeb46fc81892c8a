"""Errors planted in the modules of train/model/ and what train/optim/ does with their gradients: (file, text, what it becomes, the
module's own test, the run that shows it, what that run's tensor diff names first: the end of a name). A run None: there is none, since
layers with experts are not cut over TP, and a run of ZeRO-2 takes more ranks."""

MODEL = "train/model/"
# Flags of runs beside modules.MODEL; with TP 2 x PP 2, and SP but in those whose names begin with "tp".
LLAMA = "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --hidden-dropout 0 --attention-dropout 0"
RUNS = {
    "llama": LLAMA + " --untie-embeddings-and-output-weights",
    "tp": LLAMA + " --untie-embeddings-and-output-weights",
    "gpt": "--untie-embeddings-and-output-weights",
    "erf": "--untie-embeddings-and-output-weights --no-bias-gelu-fusion",
    "gemma": LLAMA + " --untie-embeddings-and-output-weights --qk-layernorm --post-norm --input-embeds-norm --attn-logit-softcapping 5 "
             "--output-logit-softcapping 3",
    "v": LLAMA + " --schedules-method zb-v",
    "packed": LLAMA + " --untie-embeddings-and-output-weights --reset-attention-mask --reset-position-ids",
    "learned": "--untie-embeddings-and-output-weights --reset-position-ids",
    "masked": LLAMA + " --untie-embeddings-and-output-weights --eod-mask-loss",
    "chunks": LLAMA + " --untie-embeddings-and-output-weights --loss-chunk-size 4",
    "tp_chunks": LLAMA + " --untie-embeddings-and-output-weights --loss-chunk-size 4",
}
MUTANTS = [
    # attention
    ("attention.cpp", "rotate(grads.dq, sequence, /*inverse=*/true);", "rotate(grads.dq, sequence, /*inverse=*/false);", "attention", "llama", "layers.3.self_attention.linear_qkv:grad"),
    ("attention.cpp", "rotate(grads.dk, sequence, /*inverse=*/true);", "rotate(grads.dk, sequence, /*inverse=*/false);", "attention", "llama", "layers.3.self_attention.linear_qkv:grad"),
    ("attention.cpp", "rotate(grads.dk, sequence, /*inverse=*/true);", "rotate(grads.dk, {}, /*inverse=*/true);", "attention", "packed", "layers.3.self_attention.linear_qkv:grad"),
    ("attention.cpp", "grads.dq = q_norm_->backward(grads.dq, saved.q_raw, saved.q_norm);", "", "attention", "gemma", "layers.3.self_attention.linear_qkv:grad"),
    ("attention.cpp", "grads.dk = k_norm_->backward(grads.dk, saved.k_raw, saved.k_norm);", "", "attention", "gemma", "layers.3.self_attention.linear_qkv:grad"),
    ("attention.cpp", "merge_qkv(state_.ops, grads.dq, grads.dk, grads.dv)", "merge_qkv(state_.ops, grads.dq, grads.dv, grads.dk)", "attention", "llama", "layers.3.self_attention.linear_qkv:grad"),
    ("attention.cpp", "projection_.backward(post_norm_ ? dbranch : dy,", "projection_.backward(dy,", "attention", "gemma", "layers.3.self_attention.core_attention:grad"),
    ("attention.cpp", "norm_.backward(dnormed, x, saved.norm, &dresidual)", "norm_.backward(dnormed, x, saved.norm)", "attention", "llama", "layers.2:grad"),
    ("attention.cpp", "norm_.backward(dnormed, x, saved.norm, &dresidual)", "norm_.backward(dresidual, x, saved.norm, &dresidual)", "attention", "llama", "layers.2:grad"),
    ("attention.cpp", "return ops::merge_qkv(", "ops::scale_inplace(state_.ops, grads.dv, 0.5F);\n  return ops::merge_qkv(", "attention", "llama", "layers.3.self_attention.linear_qkv:grad"),
    # core attention
    ("core_attention.cpp", "saved.v, saved.out, saved.lse, params(sequence));", "saved.v, saved.out, saved.lse, params({}));", "core_attention", "gpt", "layers.3.self_attention.linear_qkv:grad"),
    ("core_attention.cpp", "backward(state_.ops, dout, saved.q, saved.k,", "backward(state_.ops, saved.out, saved.q, saved.k,", "core_attention", "llama", "layers.3.self_attention.linear_qkv:grad"),
    # MLP
    ("mlp_activation.cpp", "ops::gated_activation_backward(state_.ops, activation_,", "ops::gated_activation_backward(state_.ops, ops::Activation::kGelu,", "mlp", "llama", "layers.3.mlp.linear_fc1:grad"),
    ("mlp_activation.cpp", ": ops::activation_backward(state_.ops, activation_,", ": ops::activation_backward(state_.ops, ops::Activation::kGeluTanh,", "mlp", "erf", "layers.3.mlp.linear_fc1:grad"),
    ("mlp.cpp", "fc2_.backward(post_norm_ ? dbranch : dy,", "fc2_.backward(dy,", "mlp", "gemma", "layers.3.mlp.linear_fc1:grad"),
    ("mlp.cpp", "norm_.backward(dnormed, x, saved.norm, &dresidual)", "norm_.backward(dnormed, x, saved.norm)", "mlp", "llama", "layers.3.self_attn_bda:grad"),
    ("mlp.cpp", "fc1_.start_backward(std::move(dfc1), std::move(saved.normed), weights)", "fc1_.start_backward(std::move(dfc1), ops::cast(state_.ops, x, x.dtype()), weights)", "mlp", "llama", "layers.3.mlp.linear_fc1.weight:grad"),
    ("mlp.cpp", "  dbranch.reset();\n  core::Tensor dfc1", "  ops::scale_inplace(state_.ops, dproduct, -1.0F);\n  core::Tensor dfc1", "mlp", "llama", "layers.3.mlp.linear_fc1:grad"),
    ("mlp.cpp", "dbranch = post_norm_->backward(dy, saved.branch, saved.post_norm)", "dbranch = dy.share()", "mlp", "gemma", "layers.3.mlp.linear_fc1:grad"),
    # experts
    ("moe_layer.cpp", "norm_.backward(dnormed, x, saved.norm, &dresidual)", "norm_.backward(dnormed, x, saved.norm)", "moe_layer", None, None),
    ("moe_layer.cpp", "= probs[slot];", "= probs[slot] * 2;", "moe_layer", None, None),
    ("moe_layer.cpp", "kept ? of_rows.elements<float>()[static_cast<size_t>(rows[slot])] : 0;", "0;", "moe_layer", None, None),
    ("moe_layer.cpp", "(rows[slot])] : 0;", "(rows[slot])] : 1;", "moe_layer", None, None),
    ("moe_layer.cpp", "if (shared_) shared_->backward(dy, saved.normed.share(), saved.moe, dnormed, weights);", "", "moe_layer", None, None),
    ("experts.cpp", "  ops::scale_rows_inplace(ops, dproduct, weights);\n", "", "moe_layer", None, None),
    ("experts.cpp", "  ops::scale_rows_inplace(ops, saved.product, weights);\n", "", "moe_layer", None, None),
    ("experts.cpp", "fc2_.backward_weight(saved.product, dy, saved.ends);", "", "moe_layer", None, None),
    ("experts.cpp", "fc1_.backward_weight(saved.permuted, dfc1, saved.ends);", "", "moe_layer", None, None),
    ("grouped_linear.cpp", "grouped_matmul_dgrad(state_.ops, dy, weights(), ends, kLayout)", "grouped_matmul_dgrad(state_.ops, dy, {first_.weight, count_, first_.size()}, ends, kLayout)", "moe_layer", None, None),
    ("grouped_linear.cpp", "    ops::accumulate_fp32(state_.ops, gradients.matrix(expert), products.matrix(expert));\n", "    ops::accumulate_fp32(state_.ops, gradients.matrix(0), products.matrix(expert));\n", "moe_layer", None, None),
    ("router.cpp", "ops::linear_wgrad(state_.ops, tokens, dlogits, weight_.main_grad, sum_);", ";", "moe_layer", None, None),
    ("router.cpp", "  ops::add_inplace(state_.ops, dtokens, ops::linear_dgrad(state_.ops, dlogits, weight_.weight));\n", "", "moe_layer", None, None),
    ("router.cpp", "balance, sequence.auxiliary_scale, dlogits);", "balance, 1, dlogits);", "moe_layer", None, None),
    ("router.cpp", "  balance.batch = batch;\n", "", "moe_layer", None, None),
    ("shared_experts.cpp", "dargument[i] *= gate[i] * (1 - gate[i]);", "dargument[i] *= gate[i];", "moe_layer", None, None),
    ("shared_experts.cpp", "    ops::scale_rows_inplace(ops, gated, saved.shared_gate);\n", "", "moe_layer", None, None),
    ("shared_experts.cpp", "    ops::add_inplace(ops, dx, ops::linear_dgrad(ops, column, gate_->weight));\n", "", "moe_layer", None, None),
    ("shared_experts.cpp", "gate_->main_grad, fc1_.precision()", "fc1_.weight().main_grad.rows(0, 1), fc1_.precision()", "moe_layer", None, None),
    # linear layers
    ("linear.cpp", "return {state_, std::move(dx)};", "return {std::move(dx)};", "linear", "tp", "layers.3:grad"),
    ("linear.cpp", "if (bias_trains()) ops::bias_grad(state_.ops, dy, bias_->main_grad);", "", "linear", "gpt", "layers.3.mlp.linear_fc1.bias:grad"),
    ("linear.cpp", "precision_.backward_weight(full, dy);", "", "linear", "llama", "output_layer.weight:grad"),
    ("linear.cpp", "precision_.backward_weight(full, dy);", "precision_.backward_weight(full, dy);\n  precision_.backward_weight(full, dy);", "linear", "llama", "output_layer.weight:grad"),
    ("linear.cpp", "  weights.add(*this, std::move(x), full.share());\n", "", "linear", "llama", "layers.3.mlp.linear_fc2.weight:grad"),
    ("linear.cpp", "state_.sequence_parallel() ? state_.tp_rank() * positions : 0;", "0;", "linear", "gpt", "layers.3.mlp.linear_fc2.bias:grad"),
    ("linear.cpp", "state_.sequence_parallel() ? dy.dim(0) / state_.tp_size() : dy.dim(0);", "dy.dim(0) / 2 / state_.tp_size();", "linear", "gpt", "layers.3.mlp.linear_fc2.bias:grad"),
    ("linear.cpp", "  if (!bias_trains()) return;\n", "  return;\n", "linear", "gpt", "layers.3.mlp.linear_fc2.bias:grad"),
    ("weight_gradients.cpp", "kept_.push_back({&linear, std::move(x), std::move(dy), {}, {}});", "", "linear", "v", "layers.3.mlp.linear_fc2.weight:grad"),
    ("weight_gradients.cpp", "operands.linear->backward_weight(operands.x, operands.dy);", "operands.linear->backward_weight(operands.x, operands.dy);\n    operands.linear->backward_weight(operands.x, operands.dy);", "linear", "v", "layers.3.mlp.linear_fc2.weight:grad"),
    ("weight_gradients.cpp", "operands.linear->backward_weight(operands.x, operands.dy);", "operands.linear->backward_weight(operands.x, operands.dy);\n    break;", "linear", "v", "layers.3.mlp.linear_fc1.weight:grad"),
    ("linear_precision.cpp", "  ops::linear_wgrad(ops_, x, dy, weight_.main_grad, sum_);\n", "", "linear_precision", "llama", "output_layer.weight:grad"),
    # norm
    ("norm.cpp", "saved.rstd, dweight, dresidual);\n  }\n  return ops::layer", "saved.rstd, dweight, nullptr);\n  }\n  return ops::layer", "norm", "llama", "layers.3.self_attn_bda:grad"),
    ("norm.cpp", "params_, saved, dweight,\n                                  gradient_of(*bias_, unused_dbias), dresidual);", "params_, saved, gradient_of(*bias_, unused_dbias),\n                                  dweight, dresidual);", "norm", "gpt", "final_layernorm.bias:grad"),
    ("norm.cpp", "ops::rms_norm_backward(state_.ops, dy, x,", "ops::rms_norm_backward(state_.ops, x, x,", "norm", "llama", "layers.3:grad"),
    # layer
    ("transformer_layer.cpp", "dropout.apply(dropped, samples);", "", "transformer_layer", "gpt", "layers.3.mlp.linear_fc1:grad"),
    ("transformer_layer.cpp", "branch_gradient(attention_dropout_, dmiddle, sequence.samples)", "branch_gradient(feed_forward_dropout_, dmiddle, sequence.samples)", "transformer_layer", "gpt", "layers.3.self_attention.core_attention:grad"),
    ("transformer_layer.cpp", "saved.feed_forward, dy);", "saved.feed_forward, saved.input);", "transformer_layer", "gpt", "layers.3.self_attn_bda:grad"),
    ("transformer_layer.cpp", "saved.input, saved.attention, dmiddle)", "saved.input, saved.attention, saved.input)", "transformer_layer", "gpt", "layers.2:grad"),
    ("transformer_layer.cpp", "attention_.start_backward(dbranch, saved.input,", "attention_.start_backward(dbranch, dmiddle,", "transformer_layer", "llama", "layers.2:grad"),
    # embedding
    ("embedding.cpp", "positions_->main_grad, /*first_id=*/0);", "positions_->main_grad, /*first_id=*/1);", "embedding", "learned", "position_embeddings.weight:grad"),
    ("embedding.cpp", "  dropout_.apply(dhidden, samples);\n", "", "embedding", "gpt", "position_embeddings.weight:grad"),
    ("embedding.cpp", "ops::scale_inplace(state_.ops, dhidden, multiplier_)", "ops::scale_inplace(state_.ops, dhidden, 1.0F)", "embedding", "gemma", "word_embeddings.weight:grad"),
    ("embedding.cpp", "positions_->main_grad, first_position(dhidden)", "positions_->main_grad, 0", "embedding", "gpt", "position_embeddings.weight:grad"),
    ("embedding.cpp", "if (sparse_grad_) sparse_grad_->fold(state_.ops, weight_.main_grad);", "", "embedding", "v", "word_embeddings.weight:grad"),
    ("embedding.cpp", "rows, weight_.main_grad, first_vocab_id(state_, weight_));", "rows, weight_.main_grad, 0);", "embedding", "llama", "word_embeddings.weight:grad"),
    ("sparse_row_grad.cpp", "    int32_t& place = place_of_row_[static_cast<size_t>(row)];\n    if (place < 0) {", "    int32_t& place = place_of_row_[static_cast<size_t>(row)];\n    if (place >= 0) {\n      places_[i] = -1;\n      continue;\n    } else {", "sparse_row_grad", "v", "word_embeddings.weight:grad"),
    ("sparse_row_grad.cpp", "const int64_t row = ids[i] - first_id;", "const int64_t row = ids[i] - first_id + 1;", "sparse_row_grad", "v", "word_embeddings.weight:grad"),
    # loss
    ("loss.cpp", "  if (cap > 0) ops::softcap_backward_inplace(ops, logits, capped, cap);\n", "", "loss", "gemma", "output_layer:grad"),
    ("loss.cpp", "rows.grad_scale[i] = static_cast<float>(scale.value_or(0) * mask[i])", "rows.grad_scale[i] = static_cast<float>(scale.value_or(0))", "loss", "masked", "output_layer:grad"),
    ("loss.cpp", "dnormed = leave_row_parallel(state_, std::move(saved.dnormed));", "dnormed = std::move(saved.dnormed);", "loss", "tp_chunks", "layers.3:grad"),
    ("loss.cpp", "part(rows.sum_exp, begin, n), part(microbatch.labels, begin, n)", "part(rows.sum_exp, begin, n), part(microbatch.labels, 0, n)", "loss", "chunks", "layers.3:grad"),
    ("dropout.cpp", "state_.sequence_parallel() ? state_.tp_rank() * x.dim(0) : 0;", "0;", "dropout", "gpt", "embedding:output"),
    # ZeRO-2 and ZeRO-3
    ("../optim/bucket.cpp", "  ops::accumulate_fp32(state_.ops, parameters_.owned_grads(bucket.owned), bucket.gradients.rows(first, last));\n", "  (void)first, (void)last;\n", "optim.zero", None, None),
    ("../optim/bucket.cpp", "  ops::accumulate_fp32(state_.ops, parameters_.owned_grads(bucket.owned),", "  ops::scale_inplace(state_.ops, bucket.gradients, 0.5F);\n  ops::accumulate_fp32(state_.ops, parameters_.owned_grads(bucket.owned),", "optim.zero", None, None),
    ("../optim/bucket.cpp", "  ops::fill_zero(state_.ops, bucket->gradients);\n", "", "optim.zero", None, None),
    ("../optim/bucket.cpp", "  sum_partial(*bucket);\n", "", "optim.zero", None, None),
    ("../optim/bucket.cpp", "  if (bucket == reducing_ || !slot_for_it().defined()) finish_reduction_under_way();\n", "  if (bucket == reducing_) finish_reduction_under_way();\n", "optim.zero", None, None),
    ("../optim/bucket.cpp", "iallgatherv(parameters_.owned_weights(bucket.owned), bucket.counts, bucket.weights);", "ireduce_scatterv(bucket.weights, bucket.counts, parameters_.owned_weights(bucket.owned));", "optim.zero", None, None),
    ("../optim/bucket.cpp", "parameters_.place_weights(unit, bucket->weights.bytes());", "parameters_.place_weights(unit, weight_slots_.front().bytes());", "optim.zero", None, None),
    ("chunk_passes.cpp", "  stage_.acquire_gradients(unit);\n", "  if (layer > 0) stage_.acquire_gradients(unit);\n", "optim.zero", None, None),
    ("chunk_passes.cpp", "  stage_.announce_added(unit);\n", "  if (layer > 0) stage_.announce_added(unit);\n", "optim.zero", None, None),
]
