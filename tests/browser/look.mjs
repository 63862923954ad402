// Looks at pages in Chromium, for tests/browser/pages_test.py.
//
//   node look.mjs PACKAGES CHROMIUM PAGE.html ...
//
// PACKAGES is a folder with node_modules, where playwright-core and axe-core are. Prints one JSON object:
// for each page the rules of axe-core that it breaks, light, dark and on a phone; how far it is wider than
// a phone; and how many sheets of A4 the part for whoever signs takes when it is printed (null without one).
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [packages, executablePath, ...pages] = process.argv.slice(2);
const load = createRequire(`${packages}/`);
const { chromium } = load('playwright-core');
const axe = readFileSync(load.resolve('axe-core/axe.min.js'), 'utf8');

// What to look at in each view: all rules once, then those that the view can change.
const VIEWS = [
  { name: 'light', colorScheme: 'light', width: 1200, only: null },
  { name: 'dark', colorScheme: 'dark', width: 1200, only: ['color-contrast'] },
  { name: 'phone', colorScheme: 'light', width: 400, only: ['scrollable-region-focusable', 'target-size'] },
];
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

async function broken(page, only) {
  const violations = await page.evaluate(async (runOnly) => (
    (await globalThis.axe.run(document, { runOnly, resultTypes: ['violations'] })).violations
  ), only === null ? { type: 'tag', values: TAGS } : { type: 'rule', values: only });
  return violations.map(({ id, help, nodes }) => ({
    rule: id, help, where: nodes.map(({ html, failureSummary }) => `${html.slice(0, 200)} ${failureSummary}`),
  }));
}

async function sheets(page) {
  if (!(await page.locator('.signer').count())) return null;
  await page.addStyleTag({ content: 'main > :not(.signer) { display: none; }' });
  const pdf = await page.pdf({ preferCSSPageSize: true, printBackground: true });
  return (pdf.toString('latin1').match(/\/Type\s*\/Page\b/g) ?? []).length;
}

const browser = await chromium.launch({
  executablePath,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
try {
  const context = await browser.newContext({ offline: true });
  const found = {};
  for (const name of pages) {
    const page = await context.newPage();
    await page.goto(pathToFileURL(name).href);
    // Folded parts are part of the page too.
    await page.evaluate(() => document.querySelectorAll('details').forEach((each) => { each.open = true; }));
    await page.evaluate(axe);
    const result = { broken: {}, wider: 0, sheets: null };
    for (const { name: view, colorScheme, width, only } of VIEWS) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      result.broken[view] = await broken(page, only);
      result.wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    }
    result.sheets = await sheets(page);
    found[name] = result;
    await page.close();
  }
  console.log(JSON.stringify(found));
} finally {
  await browser.close();
}
