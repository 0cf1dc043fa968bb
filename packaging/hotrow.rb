# Formula for Homebrew on Linux; scripts/release fills in what is in @s.
class Hotrow < Formula
  desc "Records by id at memory speed, in front of your database"
  homepage "@URL@"
  version "@VERSION@"
  license "Apache-2.0"
  depends_on :linux

  on_intel do
    url "@URL@/hotrow-@VERSION@-x86_64-linux-gnu.tar.gz"
    sha256 "@SHA256_X86_64@"
  end
  on_arm do
    url "@URL@/hotrow-@VERSION@-aarch64-linux-gnu.tar.gz"
    sha256 "@SHA256_AARCH64@"
  end

  def install
    bin.install "usr/bin/hotrow", "usr/bin/hotrow-lab"
    man1.install Dir["usr/share/man/man1/*"]
    bash_completion.install Dir["usr/share/bash-completion/completions/*"]
    zsh_completion.install Dir["usr/share/zsh/vendor-completions/*"]
    fish_completion.install Dir["usr/share/fish/vendor_completions.d/*"]
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/hotrow --version")
  end
end
