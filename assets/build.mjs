// Builds the libraries of the page into airflow_eos_provider/ui/static/vendor, and axe-core for the tests.
//
// `npm ci` checks each package against package-lock.json; what is written here is checked by
// tests/unit/ui/test_assets.py against vendor/SHA256SUMS. The result is the same on each machine.
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const vendor = join(here, "../airflow_eos_provider/ui/static/vendor");
const forTests = join(here, "../tests/browser/vendor");
const version = (name) => JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8")).version;

const bundles = [
  { name: "preact", packages: ["preact", "htm"] },
  { name: "echarts", packages: ["echarts", "zrender", "tslib"] },
];
const licences = [
  ["preact", "LICENSE"],
  ["htm", "LICENSE"],
  ["echarts", "LICENSE"],
  ["echarts", "NOTICE"],
  ["echarts", "licenses/LICENSE-d3"],
  ["zrender", "LICENSE"],
  ["tslib", "LICENSE.txt"],
];

function sums(folder, names) {
  const lines = names.map((name) => {
    const sum = createHash("sha256").update(readFileSync(join(folder, name))).digest("hex");
    return `${sum}  ${name}\n`;
  });
  writeFileSync(join(folder, "SHA256SUMS"), lines.sort().join(""));
}

for (const folder of [vendor, forTests]) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
}

for (const { name, packages } of bundles) {
  await build({
    absWorkingDir: here,
    entryPoints: [join("entry", `${name}.js`)],
    outfile: join(vendor, `${name}.js`),
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    define: { "process.env.NODE_ENV": '"production"' },
    banner: { js: `/* ${packages.map((each) => `${each} ${version(each)}`).join(", ")}; licences beside this file */` },
  });
}
const written = bundles.map(({ name }) => `${name}.js`);
for (const [name, file] of licences) {
  const copy = `${name}-${file.replace(/^licenses\//, "").replace(/\.txt$/, "")}.txt`;
  copyFileSync(join(here, "node_modules", name, file), join(vendor, copy));
  written.push(copy);
}
sums(vendor, written);

copyFileSync(join(here, "node_modules/axe-core/axe.min.js"), join(forTests, "axe.min.js"));
copyFileSync(join(here, "node_modules/axe-core/LICENSE"), join(forTests, "axe-core-LICENSE.txt"));
sums(forTests, ["axe.min.js", "axe-core-LICENSE.txt"]);
