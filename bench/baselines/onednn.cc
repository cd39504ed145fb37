#include "bench/baselines/onednn.h"

#include <oneapi/dnnl/dnnl.hpp>

namespace baseline {

struct OneDnnSoftmax::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::memory::desc layout;
  dnnl::softmax_forward primitive;

  State(std::size_t rows, std::size_t cols)
      : layout({static_cast<dnnl::memory::dim>(rows), static_cast<dnnl::memory::dim>(cols)}, dnnl::memory::data_type::f32,
               dnnl::memory::format_tag::ab),
        primitive({{dnnl::prop_kind::forward_inference, layout, 1}, engine}) {}
};

OneDnnSoftmax::OneDnnSoftmax(std::size_t rows, std::size_t cols) : state_(new State(rows, cols)) {}
OneDnnSoftmax::~OneDnnSoftmax() { delete state_; }

void OneDnnSoftmax::forward(const float* x, float* p) {
  dnnl::memory source(state_->layout, state_->engine, const_cast<float*>(x));
  dnnl::memory target(state_->layout, state_->engine, p);
  state_->primitive.execute(state_->stream, {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, target}});
  state_->stream.wait();
}

}  // namespace baseline
