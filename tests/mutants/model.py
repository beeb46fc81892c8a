"""Errors planted in the backward of the modules of train/model/: (file, text, what it becomes, the module's own test)."""

MODEL = "train/model/"
MUTANTS = [
    # attention
    ("attention.cpp", "rotate(grads.dq, sequence, /*inverse=*/true);", "rotate(grads.dq, sequence, /*inverse=*/false);", "attention"),
    ("attention.cpp", "rotate(grads.dk, sequence, /*inverse=*/true);", "rotate(grads.dk, sequence, /*inverse=*/false);", "attention"),
    ("attention.cpp", "rotate(grads.dk, sequence, /*inverse=*/true);", "rotate(grads.dk, {}, /*inverse=*/true);", "attention"),
    ("attention.cpp", "grads.dq = q_norm_->backward(grads.dq, saved.q_raw, saved.q_norm);", "", "attention"),
    ("attention.cpp", "grads.dk = k_norm_->backward(grads.dk, saved.k_raw, saved.k_norm);", "", "attention"),
    ("attention.cpp", "merge_qkv(ops, grads.dq, grads.dk, grads.dv)", "merge_qkv(ops, grads.dq, grads.dv, grads.dk)", "attention"),
    ("attention.cpp", "saved.out, saved.lse, params(sequence));", "saved.out, saved.lse, params({}));", "attention"),
    ("attention.cpp", "projection_.backward(post_norm_ ? dbranch : dy,", "projection_.backward(dy,", "attention"),
    ("attention.cpp", "norm_.backward(dnormed, x, saved.norm, &dresidual)", "norm_.backward(dnormed, x, saved.norm)", "attention"),
    ("attention.cpp", "norm_.backward(dnormed, x, saved.norm, &dresidual)", "norm_.backward(dresidual, x, saved.norm, &dresidual)", "attention"),
    ("attention.cpp", "return ops::merge_qkv(", "ops::scale_inplace(ops, grads.dv, 0.5F);\n  return ops::merge_qkv(", "attention"),
    # MLP
    ("mlp.cpp", "ops::gated_activation_backward(state_.ops, activation_,", "ops::gated_activation_backward(state_.ops, ops::Activation::kGelu,", "mlp"),
    ("mlp.cpp", ": ops::activation_backward(state_.ops, activation_,", ": ops::activation_backward(state_.ops, ops::Activation::kGeluTanh,", "mlp"),
    ("mlp.cpp", "fc2_.backward(post_norm_ ? dbranch : dy,", "fc2_.backward(dy,", "mlp"),
    ("mlp.cpp", "norm_.backward(dnormed, saved.input, saved.norm, &dresidual)", "norm_.backward(dnormed, saved.input, saved.norm)", "mlp"),
    ("mlp.cpp", "fc1_.backward(std::move(dfc1), std::move(saved.normed), weights)", "fc1_.backward(std::move(dfc1), saved.input.share(), weights)", "mlp"),
    ("mlp.cpp", "  dbranch.reset();\n  core::Tensor dfc1", "  ops::scale_inplace(state_.ops, dproduct, -1.0F);\n  core::Tensor dfc1", "mlp"),
    ("mlp.cpp", "dbranch = post_norm_->backward(dy, saved.branch, saved.post_norm)", "dbranch = dy.share()", "mlp"),
    # linear layers
    ("linear.cpp", "dy.reset();\n  return leave_row_parallel(state_, std::move(dx));", "return dx;", "linear"),
    ("linear.cpp", "if (bias_ != nullptr) ops::bias_grad(state_.ops, dy, bias_->main_grad);", "", "linear"),
    ("linear.cpp", "ops::linear_wgrad(state_.ops, full, dy, weight_.main_grad);", "", "linear"),
    ("linear.cpp", "ops::linear_wgrad(state_.ops, full, dy, weight_.main_grad);", "ops::linear_wgrad(state_.ops, full, dy, weight_.main_grad);\n  ops::linear_wgrad(state_.ops, full, dy, weight_.main_grad);", "linear"),
    ("linear.cpp", "  weights.add(*this, std::move(x), full.share());\n", "", "linear"),
    ("linear.cpp", "state_.sequence_parallel() ? state_.tp_rank() * positions : 0;", "0;", "linear"),
    ("linear.cpp", "state_.sequence_parallel() ? dy.dim(0) / state_.tp_size() : dy.dim(0);", "dy.dim(0);", "linear"),
    ("linear.cpp", "  if (bias_ == nullptr) return;\n", "  return;\n", "linear"),
    ("weight_gradients.cpp", "kept_.push_back({&linear, std::move(x), std::move(dy)});", "", "linear"),
    ("weight_gradients.cpp", "  kept_.clear();\n", "  kept_.resize(1);\n", "linear"),
    ("weight_gradients.cpp", "operands.linear->backward_weight(operands.x, operands.dy);", "operands.linear->backward_weight(operands.x, operands.dy);\n    break;", "linear"),
    # norm
    ("norm.cpp", "saved.rstd, weight_.main_grad, dresidual);", "saved.rstd, weight_.main_grad, nullptr);", "norm"),
    ("norm.cpp", "params_, saved, weight_.main_grad,\n                                  bias_->main_grad, dresidual);", "params_, saved, bias_->main_grad,\n                                  weight_.main_grad, dresidual);", "norm"),
    ("norm.cpp", "ops::rms_norm_backward(state_.ops, dy, x,", "ops::rms_norm_backward(state_.ops, x, x,", "norm"),
    # layer
    ("transformer_layer.cpp", "dropout.apply(dropped, samples);", "", "transformer_layer"),
    ("transformer_layer.cpp", "branch_gradient(attention_dropout_, dmiddle, sequence.samples)", "branch_gradient(mlp_dropout_, dmiddle, sequence.samples)", "transformer_layer"),
    ("transformer_layer.cpp", "mlp_.backward(dbranch, saved.mlp, dy, weights)", "mlp_.backward(dbranch, saved.mlp, dbranch, weights)", "transformer_layer"),
    ("transformer_layer.cpp", "saved.attention, dmiddle, sequence, weights)", "saved.attention, dbranch, sequence, weights)", "transformer_layer"),
    ("transformer_layer.cpp", "attention_.backward(dbranch, saved.input,", "attention_.backward(dbranch, dmiddle,", "transformer_layer"),
    # embedding
    ("embedding.cpp", "positions_->main_grad, /*first_id=*/0);", "positions_->main_grad, /*first_id=*/1);", "embedding"),
    ("embedding.cpp", "  dropout_.apply(dhidden, samples);\n", "", "embedding"),
    ("embedding.cpp", "ops::scale_inplace(state_.ops, dhidden, multiplier_)", "ops::scale_inplace(state_.ops, dhidden, 1.0F)", "embedding"),
    ("embedding.cpp", "positions_->main_grad, first_position(dhidden)", "positions_->main_grad, 0", "embedding"),
    ("embedding.cpp", "if (sparse_grad_) sparse_grad_->fold(state_.ops, weight_.main_grad);", "", "embedding"),
    ("embedding.cpp", "full = enter_column_parallel(state_, dhidden, gathered);", "full = dhidden;", "embedding"),
    ("sparse_row_grad.cpp", "    int32_t& place = place_of_row_[static_cast<size_t>(row)];\n    if (place < 0) {", "    int32_t& place = place_of_row_[static_cast<size_t>(row)];\n    if (place >= 0) {\n      places_[i] = -1;\n      continue;\n    } else {", "sparse_row_grad"),
    ("sparse_row_grad.cpp", "const int64_t row = ids[i] - first_id;", "const int64_t row = ids[i] - first_id + 1;", "sparse_row_grad"),
    # loss
    ("loss.cpp", "  if (cap > 0) ops::softcap_backward_inplace(ops, logits, capped, cap);\n", "", "loss"),
    ("loss.cpp", "rows.grad_scale[i] = static_cast<float>(scale.value_or(0) * mask[i])", "rows.grad_scale[i] = static_cast<float>(scale.value_or(0))", "loss"),
    ("loss.cpp", "dnormed = leave_row_parallel(state_, std::move(saved.dnormed));", "dnormed = std::move(saved.dnormed);", "loss"),
    ("loss.cpp", "part(rows.sum_exp, begin, n), part(microbatch.labels, begin, n)", "part(rows.sum_exp, begin, n), part(microbatch.labels, 0, n)", "loss"),
    ("dropout.cpp", "state_.sequence_parallel() ? state_.tp_rank() * x.dim(0) : 0;", "0;", "dropout"),
]
